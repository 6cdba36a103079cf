package line

import (
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// TestShareWholeTasks: queues get permits for whole tasks. Permits that are not enough for the
// next task are kept for it.
func TestShareWholeTasks(t *testing.T) {
	for name, tt := range map[string]struct {
		due, capacity int64
		queues        []Demand
		want          []int64
	}{
		"one task comes due":      {10, 9, []Demand{{Queue: "a", Weight: 1, Left: 100, Cost: 10}, {Queue: "b", Weight: 1, Left: 100, Cost: 10}}, []int64{10, 0}},
		"two of three":            {25, 9, []Demand{{Queue: "a", Weight: 1, Left: 100, Cost: 10}, {Queue: "b", Weight: 1, Left: 100, Cost: 10}}, []int64{10, 10}},
		"an expensive one waits":  {10, 9, []Demand{{Queue: "a", Weight: 1, Left: 100, Cost: 50}, {Queue: "b", Weight: 1, Left: 100, Cost: 1}}, []int64{0, 0}},
		"by weight":               {80, 9, []Demand{{Queue: "a", Weight: 3, Left: 100, Cost: 10}, {Queue: "b", Weight: 1, Left: 100, Cost: 10}}, []int64{60, 20}},
		"little room, by weight":  {80, 4, []Demand{{Queue: "a", Weight: 3, Left: 100, Cost: 10}, {Queue: "b", Weight: 1, Left: 100, Cost: 10}}, []int64{30, 10}},
		"permits on their way":    {30, 9, []Demand{{Queue: "a", Weight: 1, Left: 100, Cost: 10, Out: 20}, {Queue: "b", Weight: 1, Left: 100, Cost: 10}}, []int64{10, 0}},
		"more than there are due": {1, 9, []Demand{{Queue: "a", Weight: 1, Left: 100, Cost: 10}}, []int64{0}},
	} {
		t.Run(name, func(t *testing.T) {
			rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
			defer rdb.Close()
			got, err := New(rdb).Share(t.Context(), []Sharing{{Limiter: "api", Due: tt.due, Capacity: tt.capacity, Queues: tt.queues}})
			if err != nil || !slices.Equal(got[0], tt.want) {
				t.Errorf("got %v, %v, want %v", got, err, tt.want)
			}
		})
	}
}

// TestShareUnused: a queue is charged for what its tasks used, not for what they could not use
// yet.
func TestShareUnused(t *testing.T) {
	m := miniredis.RunT(t)
	m.SetTime(time.Now()) // a queue counts for a second
	rdb := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer rdb.Close()
	l := New(rdb)
	share := func(due int64, queues ...Demand) []int64 {
		t.Helper()
		got, err := l.Share(t.Context(), []Sharing{{Limiter: "api", Due: due, Capacity: 100, Queues: queues}})
		if err != nil {
			t.Fatal(err)
		}
		return got[0]
	}
	a, b := Demand{Queue: "a", Weight: 1, Left: 1000}, Demand{Queue: "b", Weight: 1, Left: 1000}
	used := int64(0) // by b
	for range 5 {
		got := share(10, a, b)
		unused := a
		unused.Unused = got[0]
		share(0, unused)
		used += got[1]
	}
	if got := share(100, a, b); used == 0 || max(got[0]-used-got[1], used+got[1]-got[0]) > 1 {
		t.Errorf("after %d for b alone, a gets %d and b %d: want as much for both in the end", used, got[0], got[1])
	}
}
