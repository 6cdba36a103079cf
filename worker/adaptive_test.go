package worker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/hiddenapi"
)

// hiddenFleet is a fleet before an API that does not say its limit, and a backlog for
// all of the time.
func hiddenFleet(t *testing.T, quota int64, interval time.Duration, rate string, jobs int) (*fleet, *hiddenapi.Server) {
	limit, err := hiddenapi.NewLimit(hiddenapi.Sliding, quota, interval, 0)
	if err != nil {
		t.Fatal(err)
	}
	api, err := hiddenapi.Start(hiddenapi.NewHidden(limit))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.Close() })
	return adaptiveFleet(t, api.URL(), rate, jobs), api
}

// adaptiveFleet has a limit that adapts, and that many jobs which ask a URL.
func adaptiveFleet(t *testing.T, url, rate string, jobs int) *fleet {
	f := newFleet(t, fmt.Sprintf(`
limits: { hidden: { rate: %s, adapt: { min: 1, max: 1000 } } }
pools: [ { name: default, concurrency: 40, max_waiting: 40 } ]
jobs: { "http:request": { limits: [hidden] } }
http: { allow_hosts: [%q] }
log: { level: warn }
`, rate, strings.TrimPrefix(url, "http://")))
	payload := fmt.Appendf(nil, `{"url": %q}`, url)
	for i := range jobs {
		if _, err := f.client.Enqueue(asynq.NewTask(HTTPTaskType, payload), asynq.TaskID(fmt.Sprint(i)), asynq.MaxRetry(0)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// lossless fails the test if one of those jobs was archived, or has used up a retry.
func (f *fleet) lossless() {
	f.t.Helper()
	q, err := f.inspector.GetQueueInfo("default")
	if err != nil {
		f.t.Fatal(err)
	}
	if q.Archived != 0 || q.Retry > 0 && f.logged.FilterMessage("retry").Len() > 0 {
		f.t.Errorf("%d archived", q.Archived)
	}
	for _, list := range []func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){f.inspector.ListRetryTasks, f.inspector.ListPendingTasks} {
		for page := 1; ; page++ {
			tasks, err := list("default", asynq.PageSize(1000), asynq.Page(page))
			if err != nil {
				f.t.Fatal(err)
			}
			for _, task := range tasks {
				if task.Retried > 0 {
					f.t.Errorf("task %s has used up a retry: %s", task.ID, task.LastErr)
				}
			}
			if len(tasks) < 1000 {
				break
			}
		}
	}
}

// TestFindsAHiddenLimit: two workers find what an API accepts that never says it, few requests
// are refused, and no job fails because of it. The nightly run checks the promised figure: 80 a
// second, starting from 10, in 60 s. It runs alone: on a busy machine most permits of such a short
// interval are late, and are exchanged.
func TestFindsAHiddenLimit(t *testing.T) {
	quota, interval, rate, ramp, last, share, refusals := int64(20), 250*time.Millisecond, "4/250ms", 8*time.Second, 4*time.Second, 0.6, 0.05
	if nightly() {
		quota, interval, rate, ramp, last, share, refusals = 80, time.Second, "10/1s", 45*time.Second, 15*time.Second, 0.95, 0.01
	}
	most := float64(quota) * float64(ramp+last) / float64(interval)
	f, api := hiddenFleet(t, quota, interval, rate, int(most)+100)
	for range 2 {
		f.work(nil)
	}
	began := <-after(ramp)
	before := api.Report()
	ended := <-after(last)
	all := api.Report()
	took := float64(all.Accepted - before.Accepted)
	could := float64(quota) * ended.Sub(began).Seconds() / interval.Seconds()
	refused := float64(all.Refused) / float64(all.Accepted+all.Refused)
	t.Logf("%d of %.0f in the last %v (%.1f %%), %d of %d refused (%.2f %%): %s", int(took), could, last, 100*took/could, all.Refused,
		all.Accepted+all.Refused, 100*refused, f.rdb.HGet(t.Context(), "hidden", "rate").Val())
	if took < share*could {
		t.Errorf("%.1f %% of the limit used, want %.0f %%", 100*took/could, 100*share)
	}
	if refused > refusals {
		t.Errorf("%.2f %% refused, want %.0f %%", 100*refused, 100*refusals)
	}
	f.lossless()
}

func after(d time.Duration) <-chan time.Time { return time.NewTimer(d).C }

// TestServerErrorsAreNoEvidence: an API that answers 500 to everything changes no limit.
func TestServerErrorsAreNoEvidence(t *testing.T) {
	t.Parallel()
	f, api := hiddenFleet(t, 1000, 250*time.Millisecond, "10/250ms", 400)
	api.Fail(http.StatusInternalServerError)
	f.work(nil)
	f.awaitThat(20*time.Second, func() (bool, string) {
		r := api.Report()
		return r.Failed >= 100, fmt.Sprintf("%+v", r)
	})
	if rate := f.rdb.HGet(t.Context(), "hidden", "rate").Val(); rate != "10" {
		t.Errorf("the limit is %s, want 10", rate)
	}
}

// TestRefusedOnTheLastAttempt: a 429 that does not say for how long is no failure of a job
// whose limit adapts.
func TestRefusedOnTheLastAttempt(t *testing.T) {
	t.Parallel()
	f, api := hiddenFleet(t, 0, 250*time.Millisecond, "10/250ms", 20)
	f.work(nil)
	f.awaitThat(20*time.Second, func() (bool, string) {
		r := api.Report()
		return r.Refused >= 10, fmt.Sprintf("%+v", r)
	})
	f.lossless()
	api.SetQuota("hidden", 1000)
	f.awaitIdle("default", 0)
}

// TestLimitsOfOthers: an API tells the limit of another resource, and that of callers whom it does not know. The
// limit that adapts stays what the API says of its own.
func TestLimitsOfOthers(t *testing.T) {
	t.Parallel()
	answered := make(chan string, 10)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		limit, resource, status := "600", "core", http.StatusOK
		switch r.URL.Path {
		case "/search":
			limit, resource = "30", "search"
		case "/unknown":
			limit, status = "60", http.StatusUnauthorized
		}
		w.Header().Set("X-RateLimit-Limit", limit)
		w.Header().Set("X-RateLimit-Remaining", "20")
		w.Header().Set("X-RateLimit-Resource", resource)
		w.WriteHeader(status)
		answered <- r.URL.Path
	}))
	t.Cleanup(api.Close)
	f := newFleet(t, fmt.Sprintf(`
limits: { github: { rate: 5000/1h, preset: github, adapt: { min: 1, max: 5000 } } }
jobs: { "http:request": { limits: [github] } }
http: { allow_hosts: [%q] }
`, api.Listener.Addr()))
	f.work(nil)
	ask := func(path string) {
		t.Helper()
		if _, err := f.client.Enqueue(asynq.NewTask(HTTPTaskType, fmt.Appendf(nil, `{"url": "%s%s"}`, api.URL, path)), asynq.MaxRetry(0)); err != nil {
			t.Fatal(err)
		}
		if got := <-answered; got != path {
			t.Fatalf("asked for %s, want %s", got, path)
		}
	}
	rate := func() string { return f.rdb.HGet(t.Context(), "github", "rate").Val() }
	ask("/repos")
	f.awaitThat(5*time.Second, func() (bool, string) { return rate() == "600", "the limit is " + rate() })
	for _, path := range []string{"/search", "/unknown"} {
		ask(path)
		for range 15 { // a worker reports within a second
			if got := rate(); got != "600" {
				t.Fatalf("after %s the limit is %s, want 600", path, got)
			}
			<-time.After(100 * time.Millisecond)
		}
	}
}
