package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// awaitState waits until the task is in that state and returns what asynq knows of it.
func (f *fleet) awaitState(id string, state asynq.TaskState) *asynq.TaskInfo {
	f.t.Helper()
	var info *asynq.TaskInfo
	f.awaitThat(15*time.Second, func() (bool, string) {
		var err error
		if info, err = f.inspector.GetTaskInfo("default", id); err != nil {
			f.t.Fatal(err)
		}
		return info.State == state, fmt.Sprintf("%s is %v, want %v: %s", id, info.State, state, info.LastErr)
	})
	return info
}

// TestBadInputWaits: a job without a usable key or cost may be wrong, or the
// configuration is: it waits, and keeps its retries.
func TestBadInputWaits(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 10/1s }, account: { rate: 5/1s, key: payload.account } }
pools: [ { name: default, concurrency: 4 } ]
jobs: { "x:": { limits: [api, account], permits: payload.cost } }
log: { level: warn }
`)
	tests := map[string]struct{ payload, want string }{
		"no payload":  {"", `payload is not a JSON object`},
		"no key":      {`{"cost": 1}`, `limit "account": the payload has no account`},
		"no cost":     {`{"account": "a"}`, `permits: the payload has no cost`},
		"empty key":   {`{"cost": 1, "account": ""}`, `the key of limit "account" is empty`},
		"object":      {`{"cost": 1, "account": {}}`, `limit "account": payload.account is not a string, number or boolean`},
		"braces":      {`{"cost": 1, "account": "a{b}"}`, `the key of limit "account" has braces or control characters: "a{b}"`},
		"long key":    {`{"cost": 1, "account": "` + strings.Repeat("a", 10_000) + `"}`, `the key of limit "account" has 10000 bytes: want 128 at most`},
		"above":       {`{"cost": 6, "account": "a"}`, `limiter "account:a": more permits than the rate allows (6 of at most 5)`},
		"fractions":   {`{"cost": 1.5, "account": "a"}`, `permits: payload.cost is "1.5": want a whole number from 1 to 4294967295`},
		"below 1":     {`{"cost": 0, "account": "a"}`, `permits: payload.cost is "0": want a whole number from 1 to 4294967295`},
		"not a limit": {`{"cost": null, "account": "a"}`, `permits: payload.cost is not a string, number or boolean`},
	}
	for name, tt := range tests {
		if _, err := f.client.Enqueue(asynq.NewTask("x:y", []byte(tt.payload)), asynq.TaskID(name)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.client.Enqueue(asynq.NewTask("x:y", []byte(`{"cost": "5", "account": 7}`)), asynq.TaskID("good")); err != nil {
		t.Fatal(err)
	}
	f.work(nil)
	for name, tt := range tests {
		info := f.awaitState(name, asynq.TaskStateRetry)
		if info.Retried != 0 || !strings.Contains(info.LastErr, tt.want) {
			t.Errorf("%s: %d retries used, waits for %q, want none and %q", name, info.Retried, info.LastErr, tt.want)
		}
	}
	f.await(1, 5*time.Second)
	f.awaitAllWait(len(tests)) // the good one runs, and is gone only when asynq has written its end
	if starts := f.seen(); len(starts) != 1 || starts[0].id != "good" {
		t.Errorf("started: %v, want only the good one", starts)
	}
}

func TestPanicOnTheLastAttempt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, tenPerSecond)
	f.enqueueOurs("x:free", "panics", "earlier-panics", time.Minute)
	f.work(func(context.Context, *asynq.Task) error { panic("at the handler") })
	for _, id := range []string{"panics", "earlier-panics"} {
		info := f.awaitState(id, asynq.TaskStateArchived)
		if n := f.startsOf(id); n != 1 || !strings.Contains(info.LastErr, "at the handler") {
			t.Errorf("%s ran %d times and ended with %q, want once, with the panic", id, n, info.LastErr)
		}
	}
}

// TestHandlersThatMisbehave: one panics and one ignores that its time is over.
// Each costs its own job an attempt, with a clear error, and the rest runs on.
func TestHandlersThatMisbehave(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 100/1s } }
pools: [ { name: default, concurrency: 2 } ]
jobs: { "x:": { limits: [api] } }
log: { level: error }
`)
	returns := make(chan struct{})
	f.enqueue("x:panics", "panics", asynq.MaxRetry(5))
	f.enqueue("x:deaf", "deaf", asynq.MaxRetry(5), asynq.Timeout(time.Second))
	for i := range 20 {
		f.enqueue("x:good", fmt.Sprint(i), asynq.Retention(time.Hour))
	}
	f.work(func(_ context.Context, task *asynq.Task) error {
		switch task.Type() {
		case "x:panics":
			panic("at the handler")
		case "x:deaf":
			<-returns
			return errors.New("too late to matter")
		}
		return nil
	})
	defer close(returns)
	for id, want := range map[string]string{"panics": "at the handler", "deaf": context.DeadlineExceeded.Error()} {
		info := f.awaitState(id, asynq.TaskStateRetry)
		if info.Retried != 1 || !strings.Contains(info.LastErr, want) {
			t.Errorf("%s: %d attempts failed, the last with %q, want 1, with %q", id, info.Retried, info.LastErr, want)
		}
	}
	f.awaitThat(10*time.Second, func() (bool, string) {
		q, err := f.inspector.GetQueueInfo("default")
		if err != nil {
			t.Fatal(err)
		}
		return q.Completed == 20, fmt.Sprintf("%d of 20 other jobs done", q.Completed)
	})
}

// TestDeafHandlerKeepsItsPlace: asynq gives away the slot of a handler that ignores its
// deadline, but the handler still runs, and max_in_flight counts what runs.
func TestDeafHandlerKeepsItsPlace(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
pools: [ { name: default, concurrency: 4 } ]
jobs: { "x:": { max_in_flight: 1, hold: 0 } }
log: { level: error }
`)
	returns := make(chan struct{})
	f.enqueue("x:deaf", "deaf", asynq.MaxRetry(0), asynq.Timeout(time.Second))
	f.work(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "x:deaf" {
			<-returns
		}
		return nil
	})
	f.awaitState("deaf", asynq.TaskStateArchived)
	f.enqueue("x:next", "next", asynq.MaxRetry(5))
	if info := f.awaitState("next", asynq.TaskStateRetry); info.Retried != 0 || !strings.Contains(info.LastErr, "max_in_flight") {
		t.Errorf("put off with %q, %d retries used up", info.LastErr, info.Retried)
	}
	if n := len(f.seen()); n != 1 {
		t.Errorf("%d jobs started, want only the deaf one", n)
	}
	close(returns)
	f.await(2, 10*time.Second)
}
