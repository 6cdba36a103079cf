package worker

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/config"
)

// TestRetryAfterPausesOneAccount has an API that refuses account a for a time.
func TestRetryAfterPausesOneAccount(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 100/1s }, account: { rate: 20/1s, key: payload.account } }
pools: [ { name: default, concurrency: 5 } ]
jobs: { "x:": { limits: [api, account] } }
log: { level: warn }
`)
	const pause = 5 * time.Second
	var mu sync.Mutex
	var refused time.Time // when a was refused first
	handle := func(ctx context.Context, task *asynq.Task) error {
		if retried, _ := asynq.GetRetryCount(ctx); retried != 0 {
			t.Errorf("a refusal used up a retry")
		}
		mu.Lock()
		defer mu.Unlock()
		if strings.Contains(string(task.Payload()), `"a"`) {
			if refused.IsZero() {
				refused = time.Now()
			}
			if time.Since(refused) < pause {
				return fmt.Errorf("answered: %w", RetryAfter(time.Until(refused.Add(pause))))
			}
		}
		return nil
	}
	for i := range 30 {
		for _, account := range []string{"a", "b"} {
			task := asynq.NewTask("x:"+account, fmt.Appendf(nil, `{"account": %q}`, account))
			// On its last attempt from the beginning, half of them.
			if _, err := f.client.Enqueue(task, asynq.TaskID(fmt.Sprint(account, i)), asynq.MaxRetry(i%2)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 4 {
		f.work(handle)
	}
	f.awaitThat(20*time.Second, func() (bool, string) {
		q, err := f.inspector.GetQueueInfo("default")
		if err != nil {
			t.Fatal(err)
		}
		return q.Size == 0 && len(f.seen()) >= 60, fmt.Sprintf("%d left, %d archived", q.Size, q.Archived)
	})
	var early, bs int
	var lastB time.Time
	for _, s := range f.seen() {
		switch d := s.at.Sub(refused); {
		case s.typ == "x:b":
			bs++
			lastB = s.at
		case d > 150*time.Millisecond && d < pause-50*time.Millisecond:
			early++
		}
	}
	if early > 0 {
		t.Errorf("%d starts of the refused account within its time", early)
	}
	if d := lastB.Sub(refused); bs != 30 || d > pause {
		t.Errorf("%d starts of the other account, the last %v after a refusal of the first, want 30 before its %v are over", bs, d, pause)
	}
}

func TestRetryAfterWithoutLimits(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "log: { level: warn }\n")
	first := true
	f.enqueue("x", "a", asynq.MaxRetry(0))
	f.work(func(context.Context, *asynq.Task) error {
		if first {
			first = false
			return RetryAfter(time.Second)
		}
		return nil
	})
	f.await(2, 10*time.Second)
	f.awaitIdle("default", 0)
}

// TestRetryAfterWithoutAJobOfTheConfig: an answer of the API parks a job for max_pause at most, also where no job of the
// configuration says what that is: then for its default.
func TestRetryAfterWithoutAJobOfTheConfig(t *testing.T) {
	t.Parallel()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "864000") // ten days
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(api.Close)
	f := newFleet(t, fmt.Sprintf("http: { allow_hosts: [%q] }\nlog: { level: warn }\n", api.Listener.Addr()))
	task := asynq.NewTask(HTTPTaskType, fmt.Appendf(nil, `{"url":%q}`, api.URL))
	if _, err := f.client.Enqueue(task, asynq.TaskID("refused")); err != nil {
		t.Fatal(err)
	}
	f.work(nil)
	most := config.Job{}.LongestPause()
	if away := time.Until(f.awaitState("refused", asynq.TaskStateRetry).NextProcessAt); away < most/2 || away > most+time.Second {
		t.Errorf("it stays away for %v, want %v", away, most)
	}
}
