package line

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// TestShareByWeight: two processes whose queues have weights 3 and 1 take turns at a limiter that
// gives few permits at a time.
func TestShareByWeight(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer rdb.Close()
	l := New(rdb)
	for _, most := range []int64{1, 3, 100} {
		for _, due := range []int64{1, 2, 5, 50} {
			rdb.FlushAll(t.Context())
			got := map[string]int64{}
			share := func(queue string, weight, due int64) {
				t.Helper()
				s, err := l.Share(t.Context(), []Sharing{{Limiter: "api", Due: due, Capacity: most, Queues: []Demand{{Queue: queue, Weight: weight, Left: 1000}}}})
				if err != nil {
					t.Fatal(err)
				}
				got[queue] += s[0][0]
			}
			share("light", 1, 0) // both are known before the first permit comes
			share("heavy", 3, 0)
			for range 200 {
				share("light", 1, due)
				share("heavy", 3, due)
			}
			if share := float64(got["heavy"]) / float64(got["heavy"]+got["light"]); most == 100 && (share < 0.7 || share > 0.8) {
				t.Errorf("%d due at a time, room for %d: %v, want three times as many for the queue of weight 3", due, most, got)
			}
		}
	}
}

// TestShareBesideOthers: another process has queues in line for the same limiter. What the queues get does not
// depend on how much of it this process has capacity for, beyond that: in the end each queue gets its part.
func TestShareBesideOthers(t *testing.T) {
	m := miniredis.RunT(t)
	m.SetTime(time.Now()) // a queue counts for a second
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	l := New(rdb)
	demand := func(queue string, weight, left int64) Demand {
		return Demand{Queue: queue, Weight: weight, Left: left, Cost: 1}
	}
	a, b, c := demand("a", 1, 1000), demand("b", 1, 3), demand("c", 3, 100_000)
	for i, step := range []struct {
		due, capacity int64
		queues        []Demand
		want          []int64
	}{
		{0, 0, []Demand{a, b}, []int64{0, 0}},
		{0, 0, []Demand{c}, []int64{0}},
		{100, 0, []Demand{a, b}, []int64{0, 0}},
		{100, 8, []Demand{a, b}, []int64{5, 3}},
		{100, 0, []Demand{c}, []int64{0}},
		{100, 9, []Demand{c}, []int64{9}},
		{100, 100, []Demand{a, b}, []int64{21, 3}},
		{10, 100, []Demand{a}, []int64{0}},
		{100, 100, []Demand{c}, []int64{90}},
	} {
		got, err := l.Share(t.Context(), []Sharing{{Limiter: "api", Due: step.due, Capacity: step.capacity, Queues: step.queues}})
		if err != nil || !slices.Equal(got[0], step.want) {
			t.Errorf("step %d: got %v, %v, want %v", i, got, err, step.want)
		}
	}
}

// TestShareAfterMany: two queues of the same high weight get equal shares, and one far below them at most one permit, however
// many permits that one had while they had no tasks. A process that visits only one of the queues sees that, too.
func TestShareAfterMany(t *testing.T) {
	for name, per := range map[string]string{"a limit of all": "", "a limit of each process": "process"} {
		t.Run(name, func(t *testing.T) {
			m := miniredis.RunT(t)
			m.SetTime(time.Now()) // a queue counts for a second
			rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
			defer rdb.Close()
			l := New(rdb)
			share := func(due int64, queues ...Demand) int64 {
				t.Helper()
				s, err := l.Share(t.Context(), []Sharing{{Limiter: "api", Client: per, Due: due, Capacity: 5000, Queues: queues}})
				if err != nil {
					t.Fatal(err)
				}
				return s[0][0]
			}
			low := Demand{Queue: "low", Weight: 1, Left: 1 << 40, Cost: 10_000}
			for range 10 {
				share(50_000_000, low)
			}
			low.Cost = 1
			a, b := Demand{Queue: "a", Weight: 1e12, Left: 1000, Cost: 1}, Demand{Queue: "b", Weight: 1e12, Left: 1000, Cost: 1}
			got := map[string]int64{}
			share(0, a)
			share(0, b)
			for range 50 {
				got["a"] += share(1, a)
				got["low"] += share(1, low)
				got["b"] += share(1, b)
			}
			if got["a"] < 15 || got["b"] < 15 || got["low"] > 1 {
				t.Errorf("got %v, want as many for b as for a", got)
			}
		})
	}
}

// flow is a limit of which a permit comes due every 10 ms, in a Redis whose time the test sets. What is not used can be used
// later, 100 permits at most.
type flow struct {
	t     *testing.T
	m     *miniredis.Miniredis
	lines *Lines
	now   time.Time
	due   int64
	got   map[string]int64
}

func newFlow(t *testing.T) *flow {
	m := miniredis.RunT(t)
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { rdb.Close() })
	return &flow{t: t, m: m, lines: New(rdb), now: time.Now(), got: map[string]int64{}}
}

// step lets 10 ms pass.
func (f *flow) step() {
	f.now = f.now.Add(10 * time.Millisecond)
	f.m.SetTime(f.now)
	f.due = min(f.due+1, 100)
}

// visit is one of a worker that has capacity for so many tasks of the queue, of which there are always more.
func (f *flow) visit(capacity int64, queue string, weight int64, serves ...string) int64 {
	f.t.Helper()
	got, err := f.lines.Share(f.t.Context(), []Sharing{{
		Limiter: "api", Due: f.due, Capacity: min(capacity, f.due), Short: f.due > capacity, Serves: append(serves, queue),
		Queues: []Demand{{Queue: queue, Weight: weight, Left: 10_000, Cost: 1}},
	}})
	if err != nil {
		f.t.Fatal(err)
	}
	n := got[0][0]
	f.due -= n
	f.got[queue] += n
	return n
}

// TestShareBesideFewSlots: a queue whose worker has few slots gets what they can use, and the queue of another worker the
// rest. When its worker has more slots, both get equal shares: it does not get later what it could not use.
func TestShareBesideFewSlots(t *testing.T) {
	for name, tt := range map[string]struct {
		slots int
		lasts int // of its handlers, in steps
		uses  int64
		rest  int64
	}{
		"one slot":       {1, 50, 36, 1800},
		"more of them":   {10, 50, 360, 1450},
		"short":          {2, 10, 300, 1450},
		"half of it":     {20, 50, 700, 1000},
		"more than half": {30, 50, 850, 850},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFlow(t)
			var ends []int // of its handlers
			for i := range 2000 {
				f.step()
				if i%4 == 0 {
					f.visit(50, "web", 1)
				}
				ends = slices.DeleteFunc(ends, func(at int) bool { return at <= i })
				if free := tt.slots - len(ends); free > 0 && (i%4 == 1 || len(ends) > 0) {
					for range f.visit(int64(free), "bulk", 1) {
						ends = append(ends, i+tt.lasts)
					}
				}
			}
			t.Logf("%v", f.got)
			if f.got["bulk"] < tt.uses || f.got["web"] < tt.rest {
				t.Errorf("of 2000 permits: %v, want at least %d for bulk and %d for web", f.got, tt.uses, tt.rest)
			}
			clear(f.got)
			for i := range 200 {
				f.step()
				if i%4 == 0 {
					f.visit(50, "web", 1)
				}
				if i%4 == 1 {
					f.visit(50, "bulk", 1)
				}
			}
			if n := f.got["web"]; n < 80 {
				t.Errorf("with as many slots for both: %v, want equal shares", f.got)
			}
		})
	}
}

// TestShareOfManyWorkers: a queue gets its part by weight whatever workers serve it: a large one and a small one, or many
// small ones. It does so also if permits come many at a time.
func TestShareOfManyWorkers(t *testing.T) {
	for name, tt := range map[string]struct {
		workers []int64 // their capacity at each visit
		bursts  bool
	}{
		"a large and a small one":            {[]int64{50, 1}, false},
		"many small ones":                    {[]int64{1, 1, 1, 1, 1, 1, 1, 1}, false},
		"a large and a small one, in bursts": {[]int64{50, 1}, true},
		"many small ones, in bursts":         {[]int64{2, 2, 2, 2, 2, 2, 2, 2}, true},
	} {
		t.Run(name, func(t *testing.T) {
			f, rnd := newFlow(t), rand.New(rand.NewPCG(1, 2))
			held := int64(0) // until the burst
			f.visit(50, "bulk", 1)
			for i := range 1500 {
				f.step()
				if tt.bursts {
					if f.due, held = f.due-1, held+1; i%100 == 0 {
						f.due, held = f.due+held, 0
					}
				}
				if rnd.IntN(4) == 0 {
					f.visit(50, "bulk", 1)
				}
				for _, capacity := range tt.workers {
					if rnd.IntN(4) == 0 {
						f.visit(capacity, "web", 4)
					}
				}
			}
			t.Logf("%v", f.got)
			if n := f.got["web"] + f.got["bulk"]; n < 1350 || f.got["web"] < n*76/100 || f.got["web"] > n*84/100 {
				t.Errorf("of 1500 permits: %v, want four times as many for web, which has four times the weight", f.got)
			}
		})
	}
}

// TestShareStrictly: of the queues of a worker the first gets all that is due, but for one permit, also while another worker
// visits it that has little capacity.
func TestShareStrictly(t *testing.T) {
	f := newFlow(t)
	for range 300 {
		f.step()
		f.visit(1, "critical", 1e12, "low")
		f.visit(50, "low", 1, "critical")
	}
	if f.got["low"] > 1 {
		t.Errorf("got %v, want one for low at most", f.got)
	}
}
