package redisson_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redisson"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

// Two JVMs and two Clients draw on one limit at once.
//
// A JVM dates its grant by its own clock before its script reaches Redis, so
// its entry is a little older than the decision. By then others may have
// dropped what was still in its window. Two things are exact nevertheless:
// every decision, by what counted when it was made; and in the log
// every window that is shorter than the interval by the JVMs' lag. The rest is
// Redisson's own, and happens without us too.
func TestMixedFleet(t *testing.T) {
	const permits, interval, length = 50, 500 * time.Millisecond, 3 * time.Second
	q := share(t)
	jvms := []*redisson.Peer{q.java(), q.java()}
	each := slices.Repeat([]int64{1}, 4) // threads, or goroutines

	// A JVM's first calls take long.
	check(t, limiter(t, q.ours(), "warm").SetRate(t.Context(), rate(1000, time.Second)))
	for _, jvm := range jvms {
		_, err := jvm.Load(redisson.Load{Limiter: "warm", Costs: each, For: 200 * time.Millisecond})
		check(t, err)
	}

	for _, load := range []struct {
		name  string
		pause time.Duration // of a goroutine after each permit
		own   int64         // what Go's clients may use of it, by a limit of their own; 0: all
		least int64         // percent of what there is, that each side must get
	}{
		{"Go pauses", 100 * time.Millisecond, 0, 5},
		{"Go has a share", 0, 10, 5},
		{"Go waits for all", 0, 0, 0}, // then Go gets nearly all: docs/redisson.md says why
	} {
		t.Run(load.name, func(t *testing.T) {
			name, clients := name(t), []*throttle.Client{q.ours(), q.ours()}
			check(t, limiter(t, clients[0], name).SetRate(t.Context(), rate(permits, interval)))
			if load.own > 0 {
				check(t, limiter(t, clients[0], name+":go").SetRate(t.Context(), rate(load.own, interval)))
			}
			stop := q.record(overallLog(name), interval)
			ctx, cancel := context.WithTimeout(t.Context(), length)
			defer cancel()
			var wg sync.WaitGroup
			var javaGot, oursGot atomic.Int64
			for _, jvm := range jvms {
				wg.Go(func() {
					grants, err := jvm.Load(redisson.Load{Limiter: name, Costs: each, For: length})
					if err != nil {
						t.Error(err)
					}
					javaGot.Add(int64(len(grants)))
				})
			}
			for _, c := range clients {
				members := []*throttle.Limiter{limiter(t, c, name)}
				if load.own > 0 {
					members = append(members, limiter(t, c, name+":go"))
				}
				group, err := c.Group(members...)
				check(t, err)
				for range each {
					wg.Go(func() { oursGot.Add(acquireUntil(ctx, group, load.pause)) })
				}
			}
			wg.Wait()
			for _, c := range clients {
				check(t, c.Close()) // reservations of waits that ctx ended are given back by now
			}
			j := stop()

			java, ours := j.granted()
			t.Logf("Java %d, Go %d; up to %d in %v; the JVMs' lag is up to %v", java, ours, j.busiest(interval), interval, j.lag)
			if java != javaGot.Load() || ours != oursGot.Load() {
				t.Errorf("the log says Java %d, Go %d; they got %d and %d", java, ours, javaGot.Load(), oursGot.Load())
			}
			if j.most > permits {
				t.Errorf("a grant made it %d permits in %v; the limit is %d", j.most, interval, permits)
			}
			window := max(interval-j.lag, time.Microsecond)
			if most := j.busiest(window); most > permits {
				t.Errorf("%d permits in %v; the limit is %d", most, window, permits)
			}
			if least := (java + ours) * load.least / 100; java < least || ours < least {
				t.Errorf("of %d permits Java got %d, Go %d; want at least %d each", java+ours, java, ours, least)
			}
		})
	}
}

// acquireUntil acquires until ctx ends, with a pause after each permit, and
// returns how many it got.
func acquireUntil(ctx context.Context, a httplimit.Acquirer, pause time.Duration) (got int64) {
	t := time.NewTimer(pause)
	defer t.Stop()
	for a.Acquire(ctx, 1) == nil {
		got++
		t.Reset(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	return got
}
