package producer_test

import (
	"testing"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/producer"
)

// TestTrace: a job belongs to the trace of its context, unless it has one of its own: then nothing of the other is mixed in.
func TestTrace(t *testing.T) {
	was := otel.GetTextMapPropagator()
	otel.SetTextMapPropagator(propagation.TraceContext{})
	t.Cleanup(func() { otel.SetTextMapPropagator(was) })
	state, err := trace.ParseTraceState("vendor=1")
	if err != nil {
		t.Fatal(err)
	}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceState: state}))
	rdb := connect(t, redistest.Start(t))
	const own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for id, want := range map[string]map[string]string{
		"theirs": {"traceparent": "00-01000000000000000000000000000000-0200000000000000-00", "tracestate": "vendor=1"},
		"own":    {"traceparent": own, "tracestate": ""},
	} {
		job := producer.Job{Type: "a", ID: id}
		if id == "own" {
			job.Headers = map[string]string{"traceparent": own}
		}
		if _, err := producer.New(rdb).Enqueue(ctx, job); err != nil {
			t.Fatal(err)
		}
		info, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo("default", id)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range want {
			if info.Headers[name] != value {
				t.Errorf("%s: %s is %q, want %q", id, name, info.Headers[name], value)
			}
		}
	}
}
