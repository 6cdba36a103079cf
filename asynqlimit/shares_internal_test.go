package asynqlimit

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// TestTurnsOfARareLimit: Redis has forgotten what tenants got, as it does within an hour in which
// a limit gave nothing. Their lines still say who is next.
func TestTurnsOfARareLimit(t *testing.T) {
	s := &sharing{
		k: &visit{permits: 1, capacity: 1}, limiter: "api", tags: line.Tags{V: -1, Finish: make([]float64, 2), Weights: make([]float64, 2)},
		waiting: line.Waiting{All: 2, First: []line.Tenant{
			{Name: "small", Start: 5, Since: 2000, Cost: 1, Tasks: 3},
			{Name: "hog", Start: 105, Since: 1000, Cost: 1, Tasks: 1000},
		}},
	}
	s.decide(&rules{})
	for _, k := range s.visits {
		if k.Line == line.OfTenant("api", "hog") && k.Permits > 0 || k.Line == line.OfTenant("api", "small") && k.Permits != 1 {
			t.Errorf("%+v, want the next job of small to be called", s.visits)
		}
	}
}

// turns has jobs of tenants in line for the limit api, in several queues, and calls them as a process does.
type turns struct {
	t     *testing.T
	lines *line.Lines
	rdb   *redis.Client
	asynq *asynq.Client
	rules *rules
	no    int
}

func newTurns(t *testing.T, weights string) *turns {
	cfg, err := config.Parse("config.yaml", []byte(`
limits: { api: { rate: 10/1s, share: payload.tenant, weights: { `+weights+` } } }
jobs: { x: { limits: [api] } }
`))
	if err != nil {
		t.Fatal(err)
	}
	rules, err := newRules(cfg)
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { rdb.Close() })
	return &turns{t: t, lines: line.New(rdb), rdb: rdb, asynq: asynq.NewClientFromRedisClient(rdb), rules: rules}
}

// park puts n jobs of each tenant into their lines of a queue.
func (s *turns) park(queue string, n int, tenants ...string) {
	s.t.Helper()
	s.parkOf(queue, func(int) int64 { return 1 }, n, tenants...)
}

// parkOf does so with jobs that cost something else.
func (s *turns) parkOf(queue string, cost func(i int) int64, n int, tenants ...string) {
	s.t.Helper()
	s.rdb.HSet(s.t.Context(), "{api}:queues", queue, "0 1 0 0 0 1") // as the visits of processes do
	for _, tenant := range tenants {
		var parks []line.ToPark
		for range n {
			s.no++
			if _, err := s.asynq.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(fmt.Sprint(s.no)), asynq.Queue(queue)); err != nil {
				s.t.Fatal(err)
			}
		}
		taken, err := s.lines.Take(s.t.Context(), queue, time.Now().Add(time.Minute).Unix(), n, false)
		if err != nil {
			s.t.Fatal(err)
		}
		for i, task := range taken {
			parks = append(parks, line.ToPark{ID: task.ID, How: line.Parking{Line: line.OfTenant("api", tenant), Since: task.At, Cost: cost(i), By: task.By, AtOnce: true}})
		}
		if _, err := s.lines.ParkAll(s.t.Context(), queue, parks); err != nil {
			s.t.Fatal(err)
		}
	}
}

// visit calls jobs of a queue for so many permits, and returns how many of each tenant.
func (s *turns) visit(queue string, permits int64) map[string]int64 {
	s.t.Helper()
	ctx := s.t.Context()
	waiting, err := s.lines.Tenants(ctx, []line.TenantsOf{{Queue: queue, Limiter: "api", Most: 20}})
	if err != nil {
		s.t.Fatal(err)
	}
	sh := &sharing{k: &visit{permits: permits, capacity: 100, tasks: 1000, cost: 1}, limiter: "api", waiting: waiting[0]}
	names := make([]string, len(sh.waiting.First))
	for i, t := range sh.waiting.First {
		names[i] = t.Name
	}
	tags, err := s.lines.Tags(ctx, []string{queue}, []string{"api"}, [][]string{names})
	if err != nil {
		s.t.Fatal(err)
	}
	sh.tags = tags[0]
	sh.decide(s.rules)
	brought, err := s.lines.Bring(ctx, []string{queue}, [][]line.Visit{append(sh.visits, line.Visit{Line: line.SharedBy("api")})})
	if err != nil {
		s.t.Fatal(err)
	}
	own, left := brought[0][:len(sh.visits)], brought[0][len(sh.visits)].Left
	got := map[string]int64{}
	for i, b := range own {
		got[names[sh.of[i]]] += b.Called
	}
	if charge, due := sh.charge(queue, s.rules.limitOf("api"), own, left == 0); due {
		if err := s.lines.Charge(ctx, []line.Charge{charge}); err != nil {
			s.t.Fatal(err)
		}
	}
	return got
}

// TestTenantsOfTwoQueues: the tenants of a queue take turns by their weights, though those of another queue are
// served in between.
func TestTenantsOfTwoQueues(t *testing.T) {
	for _, c := range []struct {
		name, weights string
		permits       int64
		hog, small    int64
	}{
		{"equal", "", 1, 20, 20},
		{"by weight", "hog: 1, small: 3", 1, 10, 30},
		{"by weight, two at a time", "hog: 1, small: 3", 2, 20, 60},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newTurns(t, c.weights)
			s.park("a", 100, "hog", "small")
			s.park("b", 100, "x")
			got := map[string]int64{}
			for range 40 {
				for tenant, n := range s.visit("a", c.permits) {
					got[tenant] += n
				}
				s.visit("b", c.permits)
			}
			if max(got["hog"]-c.hog, c.hog-got["hog"], got["small"]-c.small, c.small-got["small"]) > 2 {
				t.Errorf("got %v, want %d of hog and %d of small", got, c.hog, c.small)
			}
		})
	}
}

// TestTenantOfDearJobs: permits count, not jobs: a tenant with dear jobs among cheap ones gets no more than one with
// cheap ones only.
func TestTenantOfDearJobs(t *testing.T) {
	s := newTurns(t, "")
	s.parkOf("a", func(i int) int64 { return []int64{50, 1}[i%2] }, 40, "dear")
	s.park("a", 300, "cheap")
	dear, cheap := 0.0, 0.0
	for range 120 {
		got := s.visit("a", 1)
		dear, cheap = dear+25.5*float64(got["dear"]), cheap+float64(got["cheap"])
	}
	if dear > 1.5*cheap+50 {
		t.Errorf("%v permits for the dear jobs and %v for the cheap ones, want about as many", dear, cheap)
	}
}

// TestWeightOfAWaitingTenant: a tenant that was served under a small weight gets its share at once when an operator
// raises the weight.
func TestWeightOfAWaitingTenant(t *testing.T) {
	s := newTurns(t, "batch: 0.01")
	s.park("a", 100, "batch", "other")
	for range 20 { // one of them is of batch, and puts it 100 ahead
		s.visit("a", 1)
	}
	if err := s.lines.SetWeight(t.Context(), "api", "batch", 1, 0.01); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for range 60 {
		for tenant, n := range s.visit("a", 1) {
			got[tenant] += n
		}
	}
	if got["batch"] < 20 {
		t.Errorf("got %v, want about half each", got)
	}
}

// TestTenantInTwoQueues: a tenant that gets much in a queue of its own is behind where it shares another. When the
// one queue has no jobs of it any more, it is behind for about a second's permits, however much it had.
func TestTenantInTwoQueues(t *testing.T) {
	s := newTurns(t, "")
	s.park("a", 200, "x", "y", "z")
	s.park("b", 300, "x")
	for range 300 { // x alone, and the others while it is
		s.visit("b", 1)
	}
	s.park("b", 60, "x")
	got := map[string]int64{}
	for range 60 {
		for tenant, n := range s.visit("a", 1) {
			got[tenant] += n
		}
		s.visit("b", 1)
	}
	if got["x"] > 5 || got["y"] < 25 || got["z"] < 25 {
		t.Errorf("while x has all of b, a gave %v, want next to nothing to x", got)
	}
	clear(got)
	for range 120 {
		for tenant, n := range s.visit("a", 1) {
			got[tenant] += n
		}
	}
	if got["x"] < 25 || got["x"] > 45 {
		t.Errorf("when b is empty, a gave %v, want about a third to x", got)
	}
}

// TestTenantsOfBothQueues: a tenant that shares both queues with others is not ahead in one of them because it is behind
// in the other.
func TestTenantsOfBothQueues(t *testing.T) {
	s := newTurns(t, "")
	s.park("a", 120, "x", "c", "d", "e", "f")
	s.park("b", 400, "x", "y")
	got := map[string]map[string]int64{"a": {}, "b": {}}
	for range 300 {
		for queue, of := range got {
			for tenant, n := range s.visit(queue, 1) {
				of[tenant] += n
			}
		}
	}
	if b := got["b"]; b["x"] > 160 || b["y"] < 140 {
		t.Errorf("b gave %v, want no more to x", b)
	}
	if a := got["a"]; a["x"] > 60 {
		t.Errorf("a gave %v, want no more than a fifth to x", a)
	}
}

// TestTenantsThatComeAgain: many tenants whose jobs have all been served come again, each with one job. They are
// served at once.
func TestTenantsThatComeAgain(t *testing.T) {
	s := newTurns(t, "")
	var tenants []string
	for i := range 60 {
		tenants = append(tenants, fmt.Sprint("tenant", i))
	}
	for round := range 3 {
		s.park("a", 1, tenants...)
		served := int64(0)
		for range 6 {
			for _, n := range s.visit("a", 10) {
				served += n
			}
		}
		if served != 60 {
			t.Errorf("round %d: %d of 60 jobs were called by 6 visits with 10 permits each", round, served)
		}
	}
}

// TestSmoothPermitsAreApart: of a smooth limit that was not used, nearly all permits are free, but only few can be
// used soon.
func TestSmoothPermitsAreApart(t *testing.T) {
	hour := throttle.Rate{Permits: 1000, Interval: time.Hour, Smooth: true, Guard: -1} // one in 3.6 s
	for _, c := range []struct {
		name  string
		u     throttle.Usage
		cost  int64
		tasks int64
		wait  time.Duration
	}{
		{"nothing was used", throttle.Usage{Rate: hour, Available: 1000, Soon: 1000}, 1, 1, 0},
		{"one was used just now", throttle.Usage{Rate: hour, Available: 990, Soon: 990, NextFree: 3500 * time.Millisecond}, 1, 0, 3500 * time.Millisecond},
		{"one is free soon", throttle.Usage{Rate: hour, Available: 990, Soon: 990, NextFree: 100 * time.Millisecond}, 1, 1, 100 * time.Millisecond},
		{"a task costs ten", throttle.Usage{Rate: hour, Available: 1000, Soon: 1000}, 10, 1, 0},
		{"it costs ten, and some were used", throttle.Usage{Rate: hour, Available: 990, Soon: 990, NextFree: 100 * time.Millisecond}, 10, 0, 32500 * time.Millisecond},
		{"fast", throttle.Usage{Rate: throttle.Rate{Permits: 100, Interval: time.Second, Smooth: true, Guard: -1}, Available: 60, Soon: 60}, 1, 21, 0},
	} {
		s := standingOf(operate.FleetUsage{Usage: c.u}, "me", c.cost)
		if n := s.tasks(0); n != c.tasks || (s.wait-c.wait).Abs() > time.Millisecond {
			t.Errorf("%s: permits for %d tasks are due, the next in %v; want %d in %v", c.name, n, s.wait, c.tasks, c.wait)
		}
	}
}
