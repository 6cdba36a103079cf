package worker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/jobthrottle/jobthrottle/producer"
)

// TestTraces: an attempt belongs to the trace of who enqueued the job, and
// shows what it acquired, who put it off and what failed.
func TestTraces(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	defer func() {
		otel.SetTracerProvider(noop.NewTracerProvider())
		otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator())
		if err := provider.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	}()

	f := newFleet(t, `
limits: { api: { rate: 1/3s, guard: 50ms } }
pools: [ { name: default, concurrency: 2, max_waiting: 1 } ]
jobs: { "x:*": { limits: [api], hold: 0 } }
`)
	f.permits = nil // spans go to the provider above
	ctx, caller := provider.Tracer("test").Start(t.Context(), "caller")
	p := producer.New(f.rdb)
	for _, id := range []string{"first", "second"} {
		if _, err := p.Enqueue(ctx, producer.Job{Type: "x:job", ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	f.work(func(ctx context.Context, _ *asynq.Task) error {
		if id, _ := asynq.GetTaskID(ctx); id == "second" {
			return fmt.Errorf("no such account: %w", asynq.SkipRetry)
		}
		return nil
	})
	f.await(2, 20*time.Second)

	// The last span ends after its handler has returned.
	var attempts tracetest.SpanStubs
	f.awaitThat(10*time.Second, func() (bool, string) {
		attempts = nil
		failed := false
		for _, s := range spans.GetSpans() {
			if s.Name == "process x:job" {
				attempts = append(attempts, s)
				failed = failed || s.Status.Code == codes.Error
			}
		}
		return failed, fmt.Sprintf("%d attempts ended", len(attempts))
	})
	all := spans.GetSpans()
	var putOff, done, failed int
	for _, s := range attempts {
		if s.SpanContext.TraceID() != caller.SpanContext().TraceID() || s.Parent.SpanID() != caller.SpanContext().SpanID() {
			t.Errorf("attempt of %v is in trace %v below %v, want %v below %v", value(s, "messaging.message.id"),
				s.SpanContext.TraceID(), s.Parent.SpanID(), caller.SpanContext().TraceID(), caller.SpanContext().SpanID())
		}
		acquire := below(all, s)
		if len(acquire) != 1 || acquire[0].Name != "acquire" || value(acquire[0], "jobthrottle.limiters") != `["api"]` || value(acquire[0], "jobthrottle.permits") != "1" {
			t.Errorf("below the attempt: %v", acquire)
			continue
		}
		switch by := value(s, "jobthrottle.put_off_by"); {
		case by == "api" && s.Status.Code == codes.Unset && value(acquire[0], "jobthrottle.put_off_by") == "api":
			putOff++
		case by == "" && s.Status.Code == codes.Unset:
			done++
		case by == "" && s.Status.Code == codes.Error && acquire[0].Status.Code == codes.Unset && len(s.Events) == 1:
			failed++
		default:
			t.Errorf("attempt: %v, %v; acquire: %v", s.Attributes, s.Status, acquire[0].Attributes)
		}
	}
	if putOff == 0 || done != 1 || failed != 1 {
		t.Errorf("%d attempts put off, %d done, %d failed; want at least one, one and one", putOff, done, failed)
	}
}

func below(all tracetest.SpanStubs, parent tracetest.SpanStub) (children tracetest.SpanStubs) {
	for _, s := range all {
		if s.Parent.SpanID() == parent.SpanContext.SpanID() {
			children = append(children, s)
		}
	}
	return children
}

// value is an attribute of a span as text, empty if it has none of the name.
func value(s tracetest.SpanStub, name attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == name {
			return a.Value.String()
		}
	}
	return ""
}
