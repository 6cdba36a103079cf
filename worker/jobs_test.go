package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/config"
)

func TestRetryDelay(t *testing.T) {
	task := asynq.NewTask("x", nil)
	tests := []struct {
		err  error
		want time.Duration
	}{
		{asynq.ErrLeaseExpired, 0},
		{&ThrottledError{RetryAfter: time.Second}, time.Second},
		{&ThrottledError{RetryAfter: time.Second, parks: true}, time.Second + fallback},
	}
	for _, tt := range tests {
		if got := retryDelay(3, tt.err, task); got != tt.want {
			t.Errorf("%v: got %v, want %v", tt.err, got, tt.want)
		}
	}
	if got := retryDelay(0, errors.New("broken"), task); got < 15*time.Second {
		t.Errorf("a failure comes back after %v, want asynq's backoff", got)
	}
}

func TestThrottledErrorText(t *testing.T) {
	err := &ThrottledError{Limiter: "api", RetryAfter: 1500 * time.Millisecond, Err: context.Canceled}
	if got, want := err.Error(), `throttled by limiter "api", next try in about 1.5s: context canceled`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, context.Canceled) {
		t.Error("the cause is not found by errors.Is")
	}
}

func TestEntryName(t *testing.T) {
	for _, c := range []entry{{queue: "default", id: "a:b"}, {queue: "a:b %", id: "c"}, {queue: "q", id: ""}} {
		queue, id, err := parseEntry(c.name())
		if err != nil || queue != c.queue || id != c.id {
			t.Errorf("%+v: %q reads as %q, %q, %v", c, c.name(), queue, id, err)
		}
	}
}

func TestLineWeights(t *testing.T) {
	queues := map[string]int{"critical": 6, "default": 3, "low": 1, "lowest": 1}
	if got := lineWeights(config.Pool{Queues: queues}); got["critical"] != 6 || got["low"] != 1 {
		t.Errorf("got %v, want the queues' own weights", got)
	}
	got := lineWeights(config.Pool{Queues: queues, Strict: true})
	if got["critical"] != 1_000_000 || got["default"] != 1000 || got["low"] != 1 || got["lowest"] != 1 {
		t.Errorf("strict: got %v", got)
	}
}
