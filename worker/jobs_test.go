package worker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

func TestRetryDelay(t *testing.T) {
	task := asynq.NewTask("x", nil)
	if got := retryDelay(nil)(3, asynq.ErrLeaseExpired, task); got != 0 {
		t.Errorf("the task of a worker that died comes back after %v", got)
	}
	if got := retryDelay(nil)(0, errors.New("broken"), task); got < 15*time.Second {
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
