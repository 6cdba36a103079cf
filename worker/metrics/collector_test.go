package metrics_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/worker"
	"github.com/jobthrottle/jobthrottle/worker/metrics"
)

// TestTruth: what workers count is what the API, asynq and Redis have seen.
func TestTruth(t *testing.T) {
	jobs, rate := 500, 400 // some must wait, even if it takes seconds to enqueue and do the others
	if nightly() {
		jobs, rate = 10_000, 2_000
	}
	s := newSite(t, 2, fmt.Sprintf(`
limits:
  api:     { rate: %d/5s }
  account: { rate: %d/5s, key: payload.account }
pools: [ { name: default, concurrency: 20 } ]
jobs: { "http:request": { limits: [api, account], hold: 0 } }
http: { allow_hosts: ["$API"] }
`, rate, rate*3/4))
	s.enqueue(jobs*3/5, worker.HTTPTaskType, map[string]string{"account": "acme"})
	s.enqueue(jobs*2/5, worker.HTTPTaskType, map[string]string{"account": "globex"})
	s.enqueue(7, worker.HTTPTaskType, nil) // without an account: they wait
	s.enqueue(5, "unknown", nil)           // without a handler: so do they
	gauges := s.awaitDoneAndWaiting(t, jobs, 12, 2*time.Minute)

	requests := float64(s.api.Report().Requests)
	all := s.gather()
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"jobthrottle_permits_granted_total", []string{"limit=api"}, requests},
		{"jobthrottle_permits_granted_total", []string{"limit=account"}, requests},
		{"jobthrottle_attempts_total", []string{"pattern=http:request", "outcome=done"}, float64(jobs)},
		{"jobthrottle_attempts_total", []string{"pattern=http:request", "outcome=failed"}, 0},
		{"jobthrottle_attempts_total", []string{"pattern=(other)", "outcome=failed"}, 0},
		{"jobthrottle_wait_seconds", []string{"pattern=http:request"}, requests},
		{"jobthrottle_job_wait_seconds", []string{"pattern=http:request"}, requests},
		{"jobthrottle_handler_seconds", []string{"pattern=http:request"}, requests},
		{"jobthrottle_oldest_waiting_seconds", nil, 0},
		{"jobthrottle_permits_returned_total", nil, 0},
		{"jobthrottle_pauses_total", nil, 0},
		{"jobthrottle_redis_errors_total", nil, 0},
		{"jobthrottle_waiters", nil, 0},
		{"jobthrottle_redis_up", nil, 2},
	} {
		if got := sum(all, tt.name, tt.labels...); got != tt.want {
			t.Errorf("%s%v is %v, want %v", tt.name, tt.labels, got, tt.want)
		}
	}
	for pattern, jobs := range map[string]float64{"http:request": 7, "(other)": 5} { // which are tried again and again
		if got := sum(all, "jobthrottle_attempts_total", "pattern="+pattern, "outcome=blocked"); got < jobs {
			t.Errorf("%v attempts of %s blocked, want at least %v", got, pattern, jobs)
		}
	}
	putOff := sum(all, "jobthrottle_attempts_total", "outcome=put_off")
	if denied := sum(all, "jobthrottle_denials_total"); denied > putOff || denied == 0 { // the others had reservations, but were too slow for them
		t.Errorf("%v denials, %v attempts put off", denied, putOff)
	}
	if parked := sum(all, "jobthrottle_jobs_parked_total"); parked != putOff {
		t.Errorf("%v times parked, %v attempts put off", parked, putOff)
	}
	for i := range gauges { // gauges tell of the fleet: each worker shows the same
		for state, want := range map[string]float64{"completed": float64(jobs), "archived": 0, "retry": 12, "parked": 0, "pending": 0, "active": 0} {
			if got := sum(gauges[i:i+1], "jobthrottle_queue_jobs", "queue=default", "pool=default", "state="+state); got != want {
				t.Errorf("worker %d: %v jobs %s, want %v", i, got, state, want)
			}
		}
	}
}

// awaitDoneAndWaiting waits until that many jobs are done, and that many wait to be tried
// again. It returns the gauges at that time.
func (s *site) awaitDoneAndWaiting(t *testing.T, done, waiting int, within time.Duration) (all []map[string]*dto.MetricFamily) {
	t.Helper()
	s.await(within, func() (bool, string) {
		all = s.gather()
		for i := range all {
			d, w := sum(all[i:i+1], "jobthrottle_queue_jobs", "state=completed"), sum(all[i:i+1], "jobthrottle_queue_jobs", "state=retry")
			active := sum(all[i:i+1], "jobthrottle_queue_jobs", "state=active") + sum(all[i:i+1], "jobthrottle_queue_jobs", "state=pending")
			if int(d) != done || int(w) != waiting || active != 0 {
				return false, fmt.Sprintf("%v done, %v waiting, %v to do", d, w, active)
			}
		}
		return true, ""
	})
	return all
}

// TestParkedIsNotRetry: asynq has jobs that are parked and jobs that failed in
// one set; the gauge tells them apart, by limit and by queue.
func TestParkedIsNotRetry(t *testing.T) {
	s := newSite(t, 1, `
limits: { api: { rate: 3/24h }, account: { rate: 2/24h, key: payload.account } }
pools: [ { name: default, concurrency: 4 } ]
jobs: { "http:request": { limits: [api], hold: 0 }, "sync:*": { limits: [account] } }
http: { allow_hosts: ["$API"] }
`)
	s.enqueue(10, worker.HTTPTaskType, nil)
	s.enqueue(4, "unknown", nil)
	s.await(20*time.Second, func() (bool, string) {
		all := s.gather()
		parked, retry := sum(all, "jobthrottle_queue_jobs", "state=parked"), sum(all, "jobthrottle_queue_jobs", "state=retry")
		byLimit := sum(all, "jobthrottle_parked_jobs", "limit=api")
		return parked == 7 && byLimit == 7 && retry == 4, fmt.Sprintf("%v parked by queue, %v by limit, %v to retry; want 7, 7 and 4", parked, byLimit, retry)
	})
	all := s.gather()
	for name, want := range map[string]float64{
		"jobthrottle_limit_permits": 3, "jobthrottle_limit_interval_seconds": 86400, "jobthrottle_permits_used": 3, "jobthrottle_permits_available": 0,
		"jobthrottle_permits_reserved": 0, "jobthrottle_paused_seconds": 0, "jobthrottle_parked_limiters": 1,
	} {
		if got := sum(all, name, "limit=api"); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := len(all[0]["jobthrottle_permits_used"].GetMetric()); got != 1 {
		t.Errorf("permits used of %d limits, want that of api alone: a limit with a key has a figure for each value", got)
	}
}

// TestParkedForSlots: while somebody else has the only slot, jobs are parked for it, and no limit by rate has any.
func TestParkedForSlots(t *testing.T) {
	s := newSite(t, 1, `
limits: { slots: { in_flight: 1 } }
jobs: { "http:request": { limits: [slots], hold: 0 } }
http: { allow_hosts: ["$API"] }
`)
	client, err := throttle.New(s.rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	slots, err := client.InFlight("slots", throttle.Slots{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	lease, err := slots.Acquire(t.Context(), "somebody")
	if err != nil {
		t.Fatal(err)
	}
	s.enqueue(3, worker.HTTPTaskType, nil)
	parked := func(want float64) {
		s.await(20*time.Second, func() (bool, string) {
			n := sum(s.gather(), "jobthrottle_in_flight_parked_jobs", "limit=slots")
			return n == want, fmt.Sprintf("%v are parked for a slot, want %v", n, want)
		})
	}
	parked(3)
	if n := sum(s.gather(), "jobthrottle_parked_jobs"); n != 0 {
		t.Errorf("%v are parked for permits", n)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	parked(0)
}

// TestPausedKeyedLimit: jobs of a limit with a key wait because each of their limiters is paused or has a long interval.
// While one is not paused, that is not why.
func TestPausedKeyedLimit(t *testing.T) {
	s := newSite(t, 1, `
limits: { account: { rate: 1/2h, key: payload.account } }
jobs: { "http:request": { limits: [account], hold: 0 } }
http: { allow_hosts: ["$API"] }
`)
	client, err := throttle.New(s.rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, account := range []string{"acme", "other"} {
		s.enqueue(2, worker.HTTPTaskType, map[string]string{"account": account})
	}
	for _, account := range []string{"", "acme", "other"} {
		want := 0.0
		if account != "" {
			limiter, err := client.Limiter("account:" + account)
			if err != nil {
				t.Fatal(err)
			}
			if err := limiter.Pause(t.Context(), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if account == "other" {
			want = 3600
		}
		s.await(20*time.Second, func() (bool, string) {
			all := s.gather()
			parked, interval, paused := sum(all, "jobthrottle_parked_jobs"), sum(all, "jobthrottle_limit_interval_seconds"), sum(all, "jobthrottle_paused_seconds")
			return parked == 2 && interval == 7200 && paused <= want && paused >= want-60, fmt.Sprintf("%v parked, interval %v, paused %v; want 2, 7200, %v", parked, interval, paused, want)
		})
	}
}

// TestRightIsMissing: Redis answers, and does not allow what the overview reads. It is not away.
func TestRightIsMissing(t *testing.T) {
	s := newSite(t, 1, "limits: { api: { rate: 10/1s } }\njobs: { \"http:request\": { limits: [api] } }\nhttp: { allow_hosts: [\"$API\"] }\n")
	s.enqueue(1, "http:request", nil)                                 // so that its queue is there
	for _, right := range []string{"-smembers", "-llen", "-memory"} { // a command itself, and two in a script of asynq's
		if err := s.rdb.Do(t.Context(), "ACL", "SETUSER", "default", "+@all", right).Err(); err != nil {
			t.Fatal(err)
		}
		s.await(20*time.Second, func() (bool, string) {
			all := s.gather()
			up, limits := sum(all, "jobthrottle_redis_up"), len(all[0]["jobthrottle_limit_permits"].GetMetric())
			return up == 1 && limits == 0, fmt.Sprintf("%s: up %v, %d limits shown", right, up, limits)
		})
		if err := s.rdb.Do(t.Context(), "ACL", "SETUSER", "default", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeyOfAnotherType: somebody wrote something else under the key of a limit that adapts: the metrics of all other limits go on.
// If that keeps the worker from reading any of them, Redis is not away.
func TestKeyOfAnotherType(t *testing.T) {
	s := newSite(t, 1, `
limits: { api: { rate: 10/1s, adapt: { min: 1, max: 20 } }, web: { rate: 10/1s } }
jobs: { "http:request": { limits: [api, web] } }
http: { allow_hosts: ["$API"] }
`)
	expect := func(key string, limits float64) {
		t.Helper()
		s.await(20*time.Second, func() (bool, string) {
			all := s.gather()
			up, found := sum(all, "jobthrottle_redis_up"), sum(all, "jobthrottle_limit_permits")
			return up == 1 && found == limits, fmt.Sprintf("%s: up %v, %v permits in all limits, want 1 and %v", key, up, found, limits)
		})
	}
	expect("nothing", 20)
	for _, key := range []string{"api", "asynq:queues"} {
		if err := s.rdb.Set(t.Context(), key, "x", 0).Err(); err != nil {
			t.Fatal(err)
		}
		expect(key, map[string]float64{"api": 10}[key])
	}
}

// TestPasswordChanged: Redis does not know the worker any more, and refuses all that it asks. No job starts, as if Redis were away.
func TestPasswordChanged(t *testing.T) {
	s := newSite(t, 1, "limits: { api: { rate: 10/1s } }\njobs: { \"http:request\": { limits: [api] } }\nhttp: { allow_hosts: [\"$API\"] }\n")
	up := func() float64 { return sum(s.gather(), "jobthrottle_redis_up") }
	s.await(20*time.Second, func() (bool, string) { return up() == 1, "Redis is not up" })
	if _, err := s.rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.ConfigSet(t.Context(), "requirepass", "another")
		p.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	s.await(20*time.Second, func() (bool, string) { return up() == 0, "Redis refuses the password, and counts as up" })
}

// TestBounded: 100,000 limiters of a keyed limit, all with jobs in line, add no series.
func TestBounded(t *testing.T) {
	s := newSite(t, 1, `
limits: { api: { rate: 10/1s }, account: { rate: 2/24h, key: payload.account } }
jobs: { "http:request": { limits: [api, account] } }
http: { allow_hosts: ["$API"] }
`)
	count := func() int {
		n := 0
		for _, f := range s.gather()[0] {
			n += len(f.GetMetric())
		}
		return n
	}
	s.await(20*time.Second, func() (bool, string) { // until the limits are in Redis
		return sum(s.gather(), "jobthrottle_limit_permits") > 0, "no limits"
	})
	before := count()
	fillLimiters(t, s, 100_000)
	s.await(20*time.Second, func() (bool, string) {
		n := sum(s.gather(), "jobthrottle_parked_limiters", "limit=account")
		return n > 0, "no limiters with parked jobs"
	})
	after := count()
	t.Logf("%d series before, %d with 100,000 keyed limiters", before, after)
	if after != before || after > 1000 {
		t.Errorf("%d series, %d with 100,000 keyed limiters", before, after)
	}
}

// fillLimiters makes n limiters of the limit account, each with a job in line, as workers would.
func fillLimiters(t *testing.T, s *site, n int) {
	t.Helper()
	script := `
for i = ARGV[1], ARGV[2] do
  local name = 'account:' .. i
  redis.call('HSET', name, 'rate', 2, 'interval', 86400000, 'type', 0)
  redis.call('ZADD', 'asynq:{default}:jt:line:' .. name, 1, i)
  redis.call('ZADD', 'asynq:{default}:jt:lines', ARGV[3], name)
end`
	soon := time.Now().Add(time.Minute).UnixMilli() // when a worker visits them
	for i := 0; i < n; i += 1000 {
		if err := s.rdb.Eval(t.Context(), script, nil, i+1, i+1000, soon).Err(); err != nil && err.Error() != "redis: nil" {
			t.Fatal(err)
		}
	}
}

// TestNames: what Prometheus' own linter says of the names and descriptions.
func TestNames(t *testing.T) {
	s := newSite(t, 1, `
limits: { api: { rate: 10/1s, adapt: { min: 1, max: 100 }, share: payload.tenant }, trial: { rate: 10/1s, dry_run: true }, slots: { in_flight: 5 } }
jobs: { "http:request": { limits: [api, trial, slots] } }
`)
	s.await(20*time.Second, func() (bool, string) { return len(s.gather()[0]) == len(described()), "metrics are missing" })
	families, err := s.workers[0].Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// described are the descriptions of all metrics.
func described() []*prometheus.Desc {
	descs := make(chan *prometheus.Desc, 100)
	metrics.NewCollector(nil).Describe(descs)
	close(descs)
	var all []*prometheus.Desc
	for d := range descs {
		all = append(all, d)
	}
	return all
}
