package line

import (
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
