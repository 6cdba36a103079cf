package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.uber.org/zap"
)

// lastTraces is how long a worker that ends waits at most for its last spans to be sent.
const lastTraces = 2 * time.Second

// startTraces sends the spans of jobs over HTTP to the collector that OpenTelemetry's own
// variables name, OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT. If neither
// is set, no spans are sent. The function that it returns ends it.
func startTraces(ctx context.Context, logger *zap.Logger, workerID string) (stop func(), err error) {
	if cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")) == "" || os.Getenv("OTEL_SDK_DISABLED") == "true" {
		return func() {}, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		logger.Warn("cannot send traces", zap.Error(err))
	}))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	who, err := resource.New(ctx, resource.WithHost(), resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "jobthrottle-worker"), attribute.String("service.instance.id", workerID)),
		resource.WithFromEnv()) // the environment overrides the others
	if err != nil {
		logger.Warn("traces name their worker in part only", zap.Error(err))
	}
	provider := trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(who))
	otel.SetTracerProvider(provider)
	otel.SetTextMapPropagator(propagation.TraceContext{})
	return func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTraces)
		defer cancel()
		if err := provider.Shutdown(ending); err != nil {
			logger.Warn("the last traces were not sent", zap.Error(err))
		}
	}, nil
}
