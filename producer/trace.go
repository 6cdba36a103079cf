package producer

import (
	"context"
	"maps"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// traced returns the job with the trace of ctx in its headers, as OpenTelemetry's propagator
// writes it, unless the job already has a trace. Without a propagator, which is OpenTelemetry's
// default, the job is unchanged.
func (j Job) traced(ctx context.Context) Job {
	trace, propagator := propagation.MapCarrier{}, otel.GetTextMapPropagator()
	own := propagator.Extract(context.Background(), propagation.MapCarrier(j.Headers))
	if oteltrace.SpanContextFromContext(own).IsValid() {
		return j
	}
	propagator.Inject(ctx, trace)
	if len(trace) > 0 {
		maps.Copy(trace, j.Headers)
		j.Headers = trace
	}
	return j
}
