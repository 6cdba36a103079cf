package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	tracev1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestTracesReachTheCollector: with OpenTelemetry's variable set, the spans of
// a job are sent before the worker has ended, and name the service.
func TestTracesReachTheCollector(t *testing.T) {
	received := make(chan string, 100)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		var request tracev1.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &request)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL, err)
		}
		for _, spans := range request.ResourceSpans {
			var service string
			for _, a := range spans.Resource.Attributes {
				if a.Key == "service.name" {
					service = a.Value.GetStringValue()
				}
			}
			for _, scope := range spans.ScopeSpans {
				for _, span := range scope.Spans {
					received <- service + ": " + span.Name
				}
			}
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	t.Setenv("OTEL_SERVICE_NAME", "mails")
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer api.Close()

	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer rdb.Close()
	client := asynq.NewClientFromRedisClient(rdb)
	payload := fmt.Appendf(nil, `{"method":"GET","url":%q}`, api.URL)
	if _, err := client.Enqueue(asynq.NewTask("http:request", payload), asynq.TaskID("one"), asynq.Retention(time.Minute)); err != nil {
		t.Fatal(err)
	}
	config := configFile(t, fmt.Sprintf(`
redis: { addrs: [%q] }
limits: { api: { rate: 10/1s } }
jobs: { "http:request": { limits: [api] } }
http: { allow_hosts: [%q] }
`, rdb.Options().Addr, api.Listener.Addr()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan int, 1)
	var stdout, stderr bytes.Buffer
	go func() {
		ended <- cli.Run(ctx, newCommand(), []string{"--config", config}, nil, &stdout, &stderr)
	}()
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.After(20 * time.Second); ; {
		if q, err := inspector.GetQueueInfo("default"); err == nil && q.Completed == 1 {
			break
		}
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatal("the job was not done")
		}
	}
	cancel()
	if status := <-ended; status != cli.Done {
		t.Fatalf("status %d\n%s", status, &stderr)
	}
	got := map[string]int{}
	for len(received) > 0 {
		got[<-received]++
	}
	if len(got) != 2 || got["mails: acquire"] != 1 || got["mails: process http:request"] != 1 {
		t.Errorf("the collector has %v\n%s", got, &stderr)
	}
}
