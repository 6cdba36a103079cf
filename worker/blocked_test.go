package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/producer"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// workWith starts a worker with a configuration of its own, after the redis
// section, and a handler for these types.
func (f *fleet) workWith(yaml, typ string) (stop func()) {
	f.t.Helper()
	redis, _, _ := strings.Cut(f.yaml, "\n")
	cfg, err := config.Parse("config.yaml", []byte(redis+"\n"+yaml))
	if err != nil {
		f.t.Fatal(err)
	}
	w, err := New(cfg, f.log)
	if err != nil {
		f.t.Fatal(err)
	}
	w.HandleFunc(typ, func(ctx context.Context, task *asynq.Task) error {
		f.note(ctx, task)
		return nil
	})
	return f.run(w)
}

// backlog enqueues n jobs of all kinds of producers: some have retries to spare,
// some none.
func (f *fleet) backlog(typ string, n int, payload any) {
	f.t.Helper()
	b, err := json.Marshal(payload)
	if err != nil {
		f.t.Fatal(err)
	}
	p := producer.New(f.rdb)
	for i := range n {
		id := fmt.Sprint("job", i)
		switch i % 3 {
		case 0, 1:
			opts := []asynq.Option{asynq.TaskID(id), asynq.MaxRetry(i % 3), asynq.Retention(time.Hour)}
			_, err = f.client.Enqueue(asynq.NewTask(typ, b), opts...)
		case 2:
			_, err = p.Enqueue(f.t.Context(), producer.Job{Type: typ, ID: id, Payload: b, MaxRetry: producer.None, Retention: time.Hour})
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// queue is what asynq says of the queue that all use here.
func (f *fleet) queue() *asynq.QueueInfo {
	f.t.Helper()
	q, err := f.inspector.GetQueueInfo("default")
	if err != nil {
		f.t.Fatal(err)
	}
	return q
}

// awaitAllWait waits until each of n jobs has been tried and waits.
func (f *fleet) awaitAllWait(n int) {
	f.t.Helper()
	f.awaitThat(time.Minute, func() (bool, string) {
		q := f.queue()
		return q.Pending+q.Active == 0 && q.Retry == n || q.Archived > 0, fmt.Sprintf("%d pending, %d active, %d waiting, %d archived", q.Pending, q.Active, q.Retry, q.Archived)
	})
	f.checkUnharmed(n)
}

// awaitAllDone waits until n jobs are done, and checks that none was lost or
// has used up a retry.
func (f *fleet) awaitAllDone(n int, within time.Duration) {
	f.t.Helper()
	f.awaitThat(within, func() (bool, string) {
		q := f.queue()
		return q.Completed == n || q.Archived > 0, fmt.Sprintf("%d of %d done, %d archived, %d waiting", q.Completed, n, q.Archived, q.Retry)
	})
	f.checkUnharmed(n)
}

func (f *fleet) checkUnharmed(n int) {
	f.t.Helper()
	if q := f.queue(); q.Archived != 0 || q.Failed != 0 || q.Size != n {
		f.t.Fatalf("%d jobs archived, %d failures, %d jobs there; want none, none and %d", q.Archived, q.Failed, q.Size, n)
	}
	for _, list := range []func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){f.inspector.ListRetryTasks, f.inspector.ListCompletedTasks} {
		for page := 1; ; page++ {
			tasks, err := list("default", asynq.Page(page), asynq.PageSize(1000))
			if err != nil {
				f.t.Fatal(err)
			}
			for _, task := range tasks {
				if task.Retried != 0 {
					f.t.Fatalf("%s has used up %d retries: %s", task.ID, task.Retried, task.LastErr)
				}
			}
			if len(tasks) < 1000 {
				break
			}
		}
	}
}

// isBlocked says whether an attempt ended because of that reason, for now.
func isBlocked(err error, reason BlockReason) bool {
	blocked, ok := errors.AsType[*BlockedError](err)
	return ok && blocked.Reason == reason && !errors.Is(err, asynq.SkipRetry)
}

// backlogSize is how many jobs have a mistake: the number in a nightly run.
func backlogSize() int {
	if nightly() {
		return 12_000
	}
	return 300
}

// mistake is something that keeps jobs from running, and that somebody mends.
type mistake struct {
	name    string
	typ     string // of the jobs; x:job if empty
	payload any
	before  string                                         // the configuration of the worker that is wrong
	after   string                                         // of the one that is right; the same worker goes on if empty
	handles string                                         // what the one that is right has a handler for; x: if empty
	mend    func(context.Context, *throttle.Limiter) error // of the limit api, while the worker runs
	reason  BlockReason
	says    string // part of what explain says
}

func mistakes(t *testing.T) []mistake {
	t.Helper()
	var requests atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	t.Cleanup(api.Close)
	host := api.Listener.Addr().String()
	const pool = "pools: [ { name: default, concurrency: 10 } ]\nlog: { level: error }\n"
	keyed := func(key string) string {
		return pool + "limits: { api: { rate: 10000/1s, key: " + key + " } }\njobs: { \"x:\": { limits: [api] } }\n"
	}
	costly := func(permits string) string {
		return pool + "limits: { api: { rate: 10000/1s } }\njobs: { \"x:\": { limits: [api], permits: " + permits + " } }\n"
	}
	hosts := func(allow, limit string) string {
		return pool + "http: { allow_hosts: [" + allow + "] }\nlimits: { api: { rate: 10000/1s" + limit + " } }\njobs: { \"http:request\": { limits: [api] } }\n"
	}
	type fields map[string]any
	set := func(rate string) func(context.Context, *throttle.Limiter) error {
		return func(ctx context.Context, l *throttle.Limiter) error {
			r, err := throttle.ParseRate(rate)
			if err != nil {
				return err
			}
			_, err = l.UpdateRate(ctx, r)
			return err
		}
	}
	return []mistake{
		{
			name: "misspelt key", payload: fields{"account": "acme"},
			before: keyed("payload.acount"), after: keyed("payload.account"), reason: BadKey, says: "payload has no acount",
		},
		{
			name: "misspelt permits", payload: fields{"tokens": 3},
			before: costly("payload.token"), after: costly("payload.tokens"), reason: BadCost, says: "payload has no token",
		},
		{
			name: "lowered limit", payload: fields{"tokens": 5},
			before: costly("payload.tokens"), mend: set("10000/1s"), reason: CostAboveLimit, says: "5 of at most 3",
		},
		{
			name: "missing host", typ: HTTPTaskType, payload: fields{"url": api.URL},
			before: hosts(`"api.example.com"`, ""), after: hosts(`"`+host+`"`, ""), reason: HostNotAllowed, says: "allow_hosts does not list it",
		},
		{
			name: "field that nobody reads", typ: HTTPTaskType, payload: fields{"url": api.URL, "account": "acme"},
			before: hosts(`"`+host+`"`, ""), after: hosts(`"`+host+`"`, ", key: payload.account"), reason: UnknownField, says: "account: unknown field",
		},
		{
			name: "missing handler", typ: "y:job",
			before: costly("1"), after: costly("1"), handles: "y:", reason: NoHandler, says: "handler not found",
		},
		{
			name: "almost the built-in type", typ: HTTPTaskType + "s", payload: fields{"url": api.URL},
			before: costly("1"), after: costly("1"), handles: "http:", reason: NoHandler, says: "handler not found",
		},
	}
}

// TestMistakesMakeJobsWait: the configuration, an operator or a deployment makes a mistake that
// affects a backlog. All jobs wait, none fails, explain says why, and all run when it is
// mended.
func TestMistakesMakeJobsWait(t *testing.T) {
	for _, m := range mistakes(t) {
		t.Run(m.name, func(t *testing.T) {
			measures(t)
			f := newFleet(t, "")
			n := backlogSize()
			typ := cmp.Or(m.typ, "x:job")
			if m.mend != nil { // the limit is there already, pinned below what jobs cost
				low := throttle.Rate{Permits: 3, Interval: time.Second}
				api := f.limiter("api")
				if err := api.SetRate(t.Context(), low); err != nil {
					t.Fatal(err)
				}
				f.pin("api")
			}
			f.backlog(typ, n, m.payload)
			began := time.Now()
			stop := f.workWith(m.before, "x:")
			f.awaitAllWait(n)
			waiting := time.Since(began)
			f.checkExplained("job0", m)
			mended := time.Now()
			if m.mend != nil {
				if err := m.mend(t.Context(), f.limiter("api")); err != nil {
					t.Fatal(err)
				}
			} else {
				stop()
				f.workWith(m.after, cmp.Or(m.handles, "x:"))
			}
			f.awaitAllDone(n, 2*time.Minute)
			t.Logf("%d jobs: all wait after %v, all done %v after it was mended; 0 archived, 0 retries used", n, waiting.Round(time.Millisecond), time.Since(mended).Round(time.Millisecond))
		})
	}
}

// checkExplained waits until the job is not just being tried, and checks what explain says.
func (f *fleet) checkExplained(id string, m mistake) {
	f.t.Helper()
	f.awaitExplained(id, func(e *Explanation) bool { return e.State == asynq.TaskStateRetry.String() })
	e := f.explain(id, m.says)
	if e.State == asynq.TaskStateRetry.String() && (e.Blocked != m.reason || !e.PutOff) {
		f.t.Errorf("explain says %q, want %q: %+v", e.Blocked, m.reason, *e)
	}
}

// TestOlderConfigurationBesideNewer: in a rolling deployment one worker knows
// what the other does not yet. All jobs run in the end.
func TestOlderConfigurationBesideNewer(t *testing.T) {
	for _, m := range mistakes(t) {
		if m.after == "" {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			measures(t)
			f := newFleet(t, "")
			n := backlogSize()
			f.backlog(cmp.Or(m.typ, "x:job"), n, m.payload)
			f.workWith(m.before, "x:")
			f.workWith(m.after, cmp.Or(m.handles, "x:"))
			began := time.Now()
			f.awaitAllDone(n, 3*time.Minute)
			t.Logf("%d jobs done after %v; 0 archived, 0 retries used", n, time.Since(began).Round(time.Millisecond))
		})
	}
}

// TestCostIsComparedWithTheLimitAsItIs: an operator has raised a limit, and
// pinned it; jobs that cost more than the file's rate run.
func TestCostIsComparedWithTheLimitAsItIs(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 10/1s } }
jobs: { "x:": { limits: [api], permits: payload.cost } }
log: { level: error }
`)
	api := f.limiter("api")
	if err := api.SetRate(t.Context(), throttle.Rate{Permits: 100, Interval: time.Second}); err != nil {
		t.Fatal(err)
	}
	f.pin("api")
	f.backlog("x:job", 3, map[string]int{"cost": 50})
	f.work(nil)
	f.awaitAllDone(3, 10*time.Second)
}

// TestBlockedJobsMakeLittleNoise: a line for each reason and type, not for each
// job, and it says what to change.
func TestBlockedJobsMakeLittleNoise(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 1000/1s, key: payload.acount } }
jobs: { "x:": { limits: [api] } }
`)
	f.backlog("x:job", 60, map[string]string{"account": "acme"})
	for i := range 20 {
		f.enqueue("y:job", fmt.Sprint("other", i))
	}
	stop := f.work(nil)
	f.awaitAllWait(80)
	logged := f.logged.All() // stopping has lines of its own
	stop()
	var lines []string
	for _, line := range logged {
		if line.Level >= zap.InfoLevel {
			lines = append(lines, fmt.Sprint(line.Message, line.ContextMap()))
		}
	}
	all := strings.Join(lines, "\n")
	if len(lines) != 2 || !strings.Contains(all, "limits.api.key") || !strings.Contains(all, "y:job") {
		t.Errorf("%d lines, want one for each type, with what to change:\n%s", len(lines), all)
	}
}

// TestBlockedJobsDoNotStopOthers: while many jobs wait for somebody to mend
// something, others run at once.
func TestBlockedJobsDoNotStopOthers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
pools: [ { name: default, concurrency: 4 } ]
log: { level: error }
`)
	f.backlog("y:job", 1000, nil)
	f.work(nil)
	f.awaitAllWait(1000)
	for i := range 100 {
		f.enqueue("x:free", fmt.Sprint("free", i))
	}
	f.await(100, 5*time.Second)
}

// attemptsWithin counts for how many attempts jobs are put off in d.
func (f *fleet) attemptsWithin(d time.Duration) int {
	f.t.Helper()
	before, until := f.putOff(), time.Now().Add(d)
	f.awaitThat(2*d, func() (bool, string) { return time.Now().After(until), "" })
	return f.putOff() - before
}

// TestBlockedJobsAreNoStorm: a backlog that nobody can run costs few attempts,
// however many jobs it has, and none of them waits long once it is mended.
func TestBlockedJobsAreNoStorm(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
pools: [ { name: default, concurrency: 10 } ]
log: { level: error }
`)
	const jobs = 3000
	f.backlog("y:job", jobs, nil)
	f.work(nil)
	f.awaitAllWait(jobs)
	if n := f.putOff(); n < jobs {
		t.Fatalf("%d attempts of %d jobs are known: what is counted here is not there", n, jobs)
	}
	if n := f.attemptsWithin(5 * time.Second); n > 20 {
		t.Errorf("%d attempts in 5s of jobs that nobody can run", n)
	}
	f.workWith("pools: [ { name: default, concurrency: 10 } ]", "y:") // beside one that still cannot run them
	mended := time.Now()
	f.awaitAllDone(jobs, 30*time.Second)
	t.Logf("%d jobs done %v after it was mended", jobs, time.Since(mended).Round(time.Millisecond))
}

// TestBlockedTypesAreMany: producers who make up types cause no storm either: at
// most 500 attempts a second. What else is wrong is still tried, and runs when it
// is mended. It runs alone, because it keeps a machine busy.
func TestBlockedTypesAreMany(t *testing.T) {
	f := newFleet(t, `
pools: [ { name: default, concurrency: 10 } ]
log: { level: error }
`)
	const types = 2000
	for i := range types {
		f.enqueue(fmt.Sprintf("made-up-%d:job", i), fmt.Sprint("made", i))
	}
	f.backlog("y:job", 50, nil)
	f.work(nil)
	f.awaitAllWait(types + 50)
	const seconds = 10
	if n := f.attemptsWithin(seconds * time.Second); n > seconds*500 {
		t.Errorf("%d attempts in %d s of jobs that nobody can run", n, seconds)
	} else {
		t.Logf("%d attempts in %d s", n, seconds)
	}
	f.workWith("pools: [ { name: default, concurrency: 10 } ]", "y:")
	mended := time.Now()
	f.awaitThat(45*time.Second, func() (bool, string) {
		q := f.queue()
		return q.Completed == 50, fmt.Sprintf("%d of 50 done", q.Completed)
	})
	t.Logf("50 jobs done %v after it was mended", time.Since(mended).Round(time.Millisecond))
	f.checkUnharmed(types + 50)
}

// TestSettleUnderALoweredLimit: what a job cost beyond its estimate is taken in
// portions that the limit gives now, not in those of the configuration.
func TestSettleUnderALoweredLimit(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 10/1s } }
jobs: { "x:": { limits: [api] } }
log: { level: error }
`)
	api := f.limiter("api")
	if err := api.SetRate(t.Context(), throttle.Rate{Permits: 3, Interval: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	f.pin("api")
	settled := make(chan error, 1)
	f.enqueue("x:job", "job")
	f.work(func(ctx context.Context, _ *asynq.Task) error {
		settled <- Settle(ctx, 9)
		return nil
	})
	if err := <-settled; err != nil {
		t.Error(err)
	}
}
