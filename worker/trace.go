package worker

import (
	"context"
	"errors"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// newTracer makes the spans of OpenTelemetry: one for each attempt of a task, in the trace that
// its headers name, and within it one for each time it acquires. Spans go where the program's
// TracerProvider sends them. Without one they cost next to nothing. Names follow
// OpenTelemetry's conventions for messaging.
func newTracer() trace.Tracer { return otel.Tracer("github.com/jobthrottle/jobthrottle/worker") }

// startAttempt begins the span of an attempt of a task.
func (w *Worker) startAttempt(ctx context.Context, task *asynq.Task) (context.Context, trace.Span) {
	ctx = otel.GetTextMapPropagator().Extract(ctx, propagation.MapCarrier(task.Headers()))
	ctx, span := w.tracer.Start(ctx, "process "+task.Type(), trace.WithSpanKind(trace.SpanKindConsumer))
	if span.IsRecording() {
		id, _ := asynq.GetTaskID(ctx)
		queue, _ := asynq.GetQueueName(ctx)
		retried, _ := asynq.GetRetryCount(ctx)
		span.SetAttributes(
			attribute.String("messaging.system", "asynq"),
			attribute.String("messaging.operation.type", "process"),
			attribute.String("messaging.destination.name", queue),
			attribute.String("messaging.message.id", id),
			attribute.String("jobthrottle.type", task.Type()),
			attribute.Int("jobthrottle.retried", retried),
		)
	}
	return ctx, span
}

// traceAcquire begins the span of a wait for permits of limiters.
func (w *Worker) traceAcquire(ctx context.Context, limiters []string, permits int64) (end func(error)) {
	_, span := w.tracer.Start(ctx, "acquire")
	if span.IsRecording() {
		span.SetAttributes(attribute.StringSlice("jobthrottle.limiters", limiters), attribute.Int64("jobthrottle.permits", permits))
	}
	return func(err error) { endSpan(span, err) }
}

// endSpan ends a span. It is no error if a limit puts a task off: that is its purpose.
func endSpan(span trace.Span, err error) {
	defer span.End()
	if err == nil || !span.IsRecording() {
		return
	}
	if throttled, ok := errors.AsType[*ThrottledError](err); ok {
		span.SetAttributes(
			attribute.String("jobthrottle.put_off_by", throttled.Limiter),
			attribute.Float64("jobthrottle.retry_after", throttled.RetryAfter.Seconds()),
		)
		return
	}
	span.RecordError(err)
	span.SetStatus(codes.Error, err.Error())
}
