package throttle_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/redis/go-redis/v9"
)

// TestCancelledPlacesAreTakenByTheNext: ten reservations that are given back at once go to the
// next ten who ask, to the microsecond: afterwards the log in Redis is what it was before.
func TestCancelledPlacesAreTakenByTheNext(t *testing.T) {
	addr := redistest.Start(t)
	for _, tc := range []struct {
		name  string
		rate  throttle.Rate
		now   int64 // permits taken at once, so that what follows is due later
		ahead int
		first int // index of the first that is cancelled
	}{
		{"evenly", throttle.Rate{Permits: 20, Interval: 20 * time.Second, Smooth: true}, 1, 18, 0},
		{"evenly, from the middle", throttle.Rate{Permits: 20, Interval: 20 * time.Second, Smooth: true}, 1, 18, 4},
		{"in a burst", throttle.Rate{Permits: 20, Interval: time.Second}, 20, 20, 5},
	} {
		for _, whose := range []string{"the same process", "another process"} {
			t.Run(tc.name+"/"+whose, func(t *testing.T) {
				rdb := redis.NewClient(&redis.Options{Addr: addr})
				defer rdb.Close()
				name := strings.ReplaceAll(t.Name(), "/", ":")
				before := newLimiter(t, addr, name, tc.rate)
				newcomers := before
				if whose == "another process" {
					newcomers = newLimiter(t, addr, name, tc.rate)
				}
				if ok, err := before.TryAcquire(t.Context(), tc.now); !ok || err != nil {
					t.Fatal(ok, err)
				}
				reservations := reserveAll(t, before, tc.ahead)
				log := readLog(t, rdb, name)
				cancelled := reservations[tc.first : tc.first+10]
				var wg sync.WaitGroup
				for _, r := range cancelled {
					wg.Go(r.Cancel)
				}
				wg.Wait()
				if left := readLog(t, rdb, name); slices.Equal(left, log) {
					t.Fatal("cancelling changed nothing")
				}
				reserveAll(t, newcomers, 10)
				if now := readLog(t, rdb, name); !slices.Equal(now, log) {
					t.Errorf("the newcomers have other reservations than those cancelled:\n%v, want\n%v", now, log)
				}
			})
		}
	}
}

// newLimiter is a limiter of a Client of its own, as in another process.
func newLimiter(t *testing.T, addr, name string, r throttle.Rate) *throttle.Limiter {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	c, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	l, err := c.LimiterWithRate(name, r)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// reserveAll makes n reservations of one permit, all at once, and returns them in the order in
// which they are due.
func reserveAll(t *testing.T, l *throttle.Limiter, n int) []*throttle.Reservation {
	t.Helper()
	rs := make([]*throttle.Reservation, n)
	var wg sync.WaitGroup
	for i := range rs {
		wg.Go(func() {
			r, err := l.Reserve(t.Context(), 1, time.Minute)
			if err != nil || !r.OK() {
				t.Errorf("no reservation: %v", err)
				return
			}
			rs[i] = r
		})
	}
	wg.Wait()
	if t.Failed() {
		t.FailNow()
	}
	slices.SortFunc(rs, func(a, b *throttle.Reservation) int { return int(a.Delay() - b.Delay()) })
	return rs
}

// readLog is a limiter's grants and reservations as Redis has them: times and permits.
func readLog(t *testing.T, rdb *redis.Client, name string) []string {
	t.Helper()
	entries, err := rdb.ZRangeWithScores(context.Background(), "{"+name+"}:permits", 0, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	lines := make([]string, len(entries))
	for i, e := range entries {
		lines[i] = fmt.Sprintf("%.3f %x", e.Score, e.Member)
	}
	return lines
}
