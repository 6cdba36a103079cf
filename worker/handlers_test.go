package worker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestHandlerOfATypeLikeTheBuiltIn: the built-in job is for its type only. Types that begin with it are
// for others.
func TestHandlerOfATypeLikeTheBuiltIn(t *testing.T) {
	handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	mux := asynq.NewServeMux()
	mux.Handle("http:", handler)
	for _, tt := range []struct {
		name       string
		other      asynq.Handler
		own        string
		like, same string // the patterns of handlers for the two types
	}{
		{"nobody else", nil, "", "", HTTPTaskType},
		{"a shorter pattern", nil, "http:", "http:", HTTPTaskType},
		{"a longer pattern", nil, HTTPTaskType + "s", HTTPTaskType + "s", HTTPTaskType},
		{"Options.Handler", handler, "", anyType, HTTPTaskType},
		{"Options.Handler, a mux", mux, "", anyType, anyType},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := NewWith(config.Default(), Options{Handler: tt.other})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { w.close() })
			if tt.own != "" {
				w.Handle(tt.own, handler)
			}
			_, like := w.handlers.Handler(asynq.NewTask(HTTPTaskType+"s", nil))
			_, same := w.handlers.Handler(asynq.NewTask(HTTPTaskType, nil))
			if like != tt.like || same != tt.same {
				t.Errorf("%q and %q, want %q and %q", like, same, tt.like, tt.same)
			}
		})
	}
}

// TestUnservedPatterns: a worker that starts tells which patterns of the configuration none of its handlers serves. It
// cannot tell that of a mux that the program brings.
func TestUnservedPatterns(t *testing.T) {
	t.Parallel()
	handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	mux := asynq.NewServeMux()
	mux.Handle("mail:", handler)
	addr := redistest.Start(t)
	for _, tt := range []struct {
		name  string
		other asynq.Handler
		want  []string
	}{
		{"handlers of its own", nil, []string{"mial:"}},
		{"Options.Handler, a mux", mux, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := config.Parse("config.yaml", fmt.Appendf(nil, `
redis: { addrs: [%q] }
limits: { api: { rate: 5/1s } }
jobs: { "mail:send:": { limits: [api] }, "mial:": { limits: [api] }, "http:*": { limits: [api] } }
`, addr))
			if err != nil {
				t.Fatal(err)
			}
			core, logged := observer.New(zap.WarnLevel)
			w, err := NewWith(cfg, Options{Zap: zap.New(core), Handler: tt.other})
			if err != nil {
				t.Fatal(err)
			}
			ran := make(chan struct{})
			w.Handle("mail:", handler)
			w.HandleFunc("ran", func(context.Context, *asynq.Task) error { close(ran); return nil })
			stop := (&fleet{t: t}).run(w)
			if _, err := asynq.NewClientFromRedisClient(w.rdb).Enqueue(asynq.NewTask("ran", nil)); err != nil {
				t.Fatal(err)
			}
			select {
			case <-ran:
			case <-time.After(20 * time.Second):
				t.Fatalf("the job did not run: %v", logged.All())
			}
			stop()
			var told []string
			for _, e := range logged.FilterMessageSnippet("no handler").All() {
				told = append(told, fmt.Sprint(e.ContextMap()["type"]))
			}
			if !slices.Equal(told, tt.want) {
				t.Errorf("told %q, want %q", told, tt.want)
			}
		})
	}
}
