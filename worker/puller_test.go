package worker

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// TestCalledBeforeItLeftItsSlot: a task whose turn comes while asynq is still
// busy with the attempt that parked it comes back as soon as asynq is done.
func TestCalledBeforeItLeftItsSlot(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "")
	p := &puller{lot: newLot(f.rdb), fleet: operate.NewFleet(f.rdb), inspector: f.inspector, logger: f.log, queues: []string{"default"}, adoption: newAdoption(f.rdb)}
	attempts, leave := make(chan error, 2), make(chan struct{})
	server := asynq.NewServerFromRedisClient(f.rdb, asynq.Config{IsFailure: isFailure, RetryDelayFunc: retryDelay, TaskCheckInterval: taskCheckInterval, LogLevel: asynq.FatalLevel})
	if err := server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		e := entry{id: "task", queue: "default", weight: 1, cost: 1, back: time.Now().Add(fallback)}
		attempts <- p.lot.add(ctx, &e, "api")
		<-leave
		return &ThrottledError{Limiter: "api", parks: true, back: e.back}
	})); err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	f.enqueue("x:limited", "task")
	if err := <-attempts; err != nil {
		t.Fatal(err)
	}
	if _, err := p.look(t.Context(), "api", p.queues); err != nil {
		t.Fatal(err)
	}
	close(leave)
	f.awaitThat(patience-time.Second, func() (bool, string) {
		if _, err := p.pull(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(attempts) > 0, "it has not come back"
	})
}

// TestWasPutOff: a handler's own error is no word of a limit, whatever it says.
func TestWasPutOff(t *testing.T) {
	api := &ThrottledError{Limiter: `odd "one", next`, RetryAfter: 90_000_000_000}
	tests := map[string]bool{
		api.Error(): true,
		(&ThrottledError{RetryAfter: retryFull}).Error():                      true,
		(&ThrottledError{Limiter: "api", Err: asynq.ErrTaskNotFound}).Error(): true,
		"throttled":                             false,
		"throttled by upstream":                 false,
		"throttled by limiter of the API":       false,
		`throttled by limiter "api"`:            false,
		"throttled, next try in about a minute": false,
		"POST: " + api.Error():                  false,
		(&ThrottledError{Err: &BlockedError{Reason: NoHandler, Err: asynq.ErrHandlerNotFound}}).Error(): false,
	}
	for text, want := range tests {
		if got := wasPutOff(&asynq.TaskInfo{LastErr: text}); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
