package jobview_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newView(t *testing.T, rdb redis.UniversalClient, yaml string) *jobview.View {
	t.Helper()
	cfg, err := config.Parse("config.yaml", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	plans, err := plan.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	client, err := cfg.Redis.NewThrottle(rdb)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	pool := jobview.Pool{Name: "default", Slots: 1, Weights: map[string]int{"default": 2, "other": 1}}
	return jobview.New(rdb, client, plans, func() []jobview.Pool { return []jobview.Pool{pool} })
}

// ages is how old the oldest task in line of each limit is, in an Overview.
func ages(t *testing.T, v *jobview.View) map[string]time.Duration {
	t.Helper()
	o, err := v.Overview(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ages := map[string]time.Duration{}
	for _, l := range o.Limits {
		ages[l.Name] = l.Oldest
	}
	return ages
}

// TestOldestAmongMany: among far more lines than an Overview reads, it finds the oldest task,
// although its line is the last that a worker will visit. It keeps showing that task, and stops
// when the task is gone. An Overview needs as many calls as before.
func TestOldestAmongMany(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	t.Cleanup(func() { rdb.Close() })
	v := newView(t, rdb, `
limits: { api: { rate: 5/1s }, account: { rate: 5/1s, key: payload.account }, idle: { rate: 5/1s } }
jobs: { x: { limits: [api, account, idle] } }
`)
	const lines = 20_000
	now := time.Now()
	park := func(queue, limiter string, since time.Time, visit int64) {
		t.Helper()
		if err := rdb.ZAdd(t.Context(), "asynq:{"+queue+"}:jt:line:"+limiter, redis.Z{Score: float64(since.UnixMicro()), Member: "old"}).Err(); err != nil {
			t.Fatal(err)
		}
		if err := rdb.ZAdd(t.Context(), "asynq:{"+queue+"}:jt:lines", redis.Z{Score: float64(visit), Member: limiter}).Err(); err != nil {
			t.Fatal(err)
		}
	}
	const young = `
for i = ARGV[1], ARGV[2] do
  redis.call('ZADD', 'asynq:{default}:jt:line:account:' .. i, ARGV[3], 'a')
  redis.call('ZADD', 'asynq:{default}:jt:lines', i, 'account:' .. i)
end`
	for i := 1; i <= lines; i += 1000 {
		if err := rdb.Eval(t.Context(), young, nil, i, i+999, now.UnixMicro()).Err(); err != nil && err != redis.Nil {
			t.Fatal(err)
		}
	}
	park("default", "account:stuck", now.Add(-2*time.Hour), lines+1)
	park("default", "api", now.Add(-time.Hour), lines+2)
	park("other", "api", now.Add(-time.Minute), 1)

	calls := func() int64 {
		t.Helper()
		info, err := rdb.Info(t.Context(), "stats").Result()
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(info) {
			if n, ok := strings.CutPrefix(strings.TrimSpace(line), "total_commands_processed:"); ok {
				calls, err := strconv.ParseInt(n, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return calls
			}
		}
		t.Fatal("Redis does not count its commands")
		return 0
	}
	found := false
	for range lines/jobview.MaxLines + 2 { // one more, as two queues share them
		before := calls()
		got := ages(t, v)
		if n := calls() - before; n > 5*jobview.MaxLines {
			t.Errorf("an overview took %d commands", n)
		}
		if got["api"] < time.Hour || got["api"] > time.Hour+time.Since(now)+time.Second || got["idle"] != 0 {
			t.Fatalf("ages %v: api's oldest is an hour old, whenever its line is visited, and idle has none", got)
		}
		switch old := got["account"] > time.Hour; {
		case found && !old:
			t.Fatal("it has lost sight of the oldest")
		case old:
			found = true
		}
	}
	if !found {
		t.Fatal("it has been through all lines, and has not found the oldest")
	}
	if err := rdb.Del(t.Context(), "asynq:{default}:jt:line:account:stuck").Err(); err != nil {
		t.Fatal(err)
	}
	if got := ages(t, v); got["account"] > time.Hour {
		t.Errorf("the oldest is gone, and the age is %v", got["account"])
	}
}

// TestOldestByRedisClock: first arrivals are Redis's, which may be ahead or behind.
func TestOldestByRedisClock(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	t.Cleanup(func() { rdb.Close() })
	v := newView(t, rdb, "limits: { api: { rate: 5/1s } }\njobs: { x: { limits: [api] } }\n")
	if got := ages(t, v); got["api"] != 0 {
		t.Errorf("nobody waits, and the oldest does for %v", got["api"])
	}
	now, err := rdb.Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	ahead := redis.Z{Score: float64(now.Add(time.Hour).UnixMicro()), Member: "a"} // Redis's clock was set back since
	for key, z := range map[string]redis.Z{"asynq:{default}:jt:line:api": ahead, "asynq:{default}:jt:lines": {Score: 1, Member: "api"}} {
		if err := rdb.ZAdd(t.Context(), key, z).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if got := ages(t, v); got["api"] != 0 {
		t.Errorf("a job of the future has waited for %v", got["api"])
	}
}
