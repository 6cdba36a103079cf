package worker

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// accountAPI gives each account that many requests in any second. It answers a request beyond
// that with 429 and Retry-After, and also all requests that come before that time is over.
type accountAPI struct {
	limit int
	away  time.Duration // a whole number of seconds

	mu       sync.Mutex
	accounts map[string]*account
}

type account struct {
	all      []time.Time
	accepted []time.Time
	refused  []time.Time // where a time to stay away began
	early    []time.Duration
	jobs     map[string]time.Time // when they were accepted
}

// underWay is how long after a refusal requests may still arrive that were sent
// before it was known.
const underWay = 100 * time.Millisecond

func (a *accountAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	name := r.URL.Query().Get("account")
	acc := a.accounts[name]
	if acc == nil {
		acc = &account{jobs: map[string]time.Time{}}
		a.accounts[name] = acc
	}
	acc.all = append(acc.all, now)
	if n := len(acc.refused); n > 0 && now.Sub(acc.refused[n-1]) < a.away {
		after := now.Sub(acc.refused[n-1])
		if after > underWay {
			acc.early = append(acc.early, after)
		}
		w.Header().Set("Retry-After", fmt.Sprint(int((a.away - after + time.Second - 1).Seconds())))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	recent := 0
	for _, at := range slices.Backward(acc.accepted) {
		if now.Sub(at) >= time.Second {
			break
		}
		recent++
	}
	if recent >= a.limit {
		acc.refused = append(acc.refused, now)
		w.Header().Set("Retry-After", fmt.Sprint(int(a.away.Seconds())))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	acc.accepted = append(acc.accepted, now)
	acc.jobs[r.URL.Query().Get("job")] = now
}

// TestAccountThatIsOver: an API refuses one of two accounts for 3 s whenever
// more than 20 of its requests come in a second, and the configuration lets 50
// through. The other account stays below. Four workers call it. It runs alone: what
// is already under way when one is refused is late on a busy machine.
func TestAccountThatIsOver(t *testing.T) {
	const jobs, limit, away = 80, 20, 3 * time.Second
	api := &accountAPI{limit: limit, away: away, accounts: map[string]*account{}}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	f := newFleet(t, fmt.Sprintf(`
limits: { api: { rate: 200/1s }, account: { rate: 50/1s, key: header.account } }
pools: [ { name: default, concurrency: 10 } ]
jobs: { "http:request": { limits: [api, account] } }
http: { allow_hosts: [%q] }
log: { level: warn }
`, server.Listener.Addr()))
	for range 4 {
		f.work(nil)
	}
	sent := map[string]time.Time{}
	call := func(account, id string, opts ...asynq.Option) {
		t.Helper()
		payload := fmt.Appendf(nil, `{"url": "%s/?account=%s&job=%s"}`, server.URL, account, id)
		task := asynq.NewTaskWithHeaders(HTTPTaskType, payload, map[string]string{"account": account})
		sent[id] = time.Now()
		if _, err := f.client.Enqueue(task, append(opts, asynq.TaskID(id), asynq.Retention(time.Hour))...); err != nil {
			t.Fatal(err)
		}
	}
	for i := range jobs {
		call("over", fmt.Sprint("over", i), asynq.MaxRetry(i%2)) // half of them on their last attempt from the beginning
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := range jobs {
		<-tick.C
		call("good", fmt.Sprint("good", i))
	}
	f.awaitThat(60*time.Second, func() (bool, string) {
		q, err := f.inspector.GetQueueInfo("default")
		if err != nil {
			t.Fatal(err)
		}
		return q.Completed == 2*jobs, fmt.Sprintf("%d of %d done, %d archived", q.Completed, 2*jobs, q.Archived)
	})

	api.mu.Lock()
	defer api.mu.Unlock()
	over, good := api.accounts["over"], api.accounts["good"]
	if len(over.refused) == 0 || len(over.early) > 0 {
		t.Errorf("%d refusals; %d requests within the time of one: %v after it", len(over.refused), len(over.early), over.early)
	}
	if len(over.jobs) != jobs || len(good.jobs) != jobs || len(good.refused) != 0 {
		t.Errorf("accepted %d and %d jobs, want %d each; %d refusals of the good account", len(over.jobs), len(good.jobs), jobs, len(good.refused))
	}
	var waits []time.Duration
	for id, at := range good.jobs {
		waits = append(waits, at.Sub(sent[id]))
	}
	slices.Sort(waits)
	if worst := waits[len(waits)-1]; worst > time.Second {
		t.Errorf("a job of the good account took %v", worst)
	}
	retried := 0
	tasks, err := f.inspector.ListCompletedTasks("default", asynq.PageSize(4*jobs))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		retried += task.Retried
	}
	if retried != 0 {
		t.Errorf("%d retries used up", retried)
	}
	t.Logf("%d requests and %d refusals for %d jobs of the account that is over, none %v to %v after a refusal; the good account's jobs arrived after p50 %v, at most %v; %d retried",
		len(over.all), len(over.all)-len(over.accepted), jobs, underWay, away, waits[len(waits)/2], waits[len(waits)-1], retried)
}

// TestDeniedAgainAndAgain calls parked tasks back many times before the limit
// allows them: those that may not be retried are not lost by that.
func TestDeniedAgainAndAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	const tasks, denials = 30, 20
	f.work(nil)
	f.enqueue("x:limited", "first")
	f.await(1, 5*time.Second)
	for i := range tasks {
		f.enqueue("x:limited", fmt.Sprint(i), asynq.MaxRetry(0))
	}
	for n := range denials {
		f.awaitThat(10*time.Second, func() (bool, string) {
			q, err := f.inspector.GetQueueInfo("default")
			if err != nil {
				t.Fatal(err)
			}
			if q.Archived > 0 {
				t.Fatalf("%d tasks archived", q.Archived)
			}
			return q.Retry+q.Scheduled == tasks && q.Active+q.Pending == 0, fmt.Sprintf("%d of %d tasks put off for the %dth time", q.Retry+q.Scheduled, tasks, n)
		})
		if _, err := f.inspector.RunAllRetryTasks("default"); err != nil {
			t.Fatal(err)
		}
		if _, err := f.inspector.RunAllScheduledTasks("default"); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.putOff(); got < tasks*denials {
		t.Errorf("%d attempts were put off, want at least %d", got, tasks*denials)
	}
	l := f.limiter("api")
	rate, err := l.Config(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rate.Permits, rate.Interval, rate.Guard = 100, time.Second, 0
	if _, err := l.UpdateRate(t.Context(), rate); err != nil {
		t.Fatal(err)
	}
	f.await(1+tasks, 20*time.Second)
	f.awaitIdle("default", 0)
}
