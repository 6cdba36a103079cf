package worker

import (
	"context"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/config"
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
