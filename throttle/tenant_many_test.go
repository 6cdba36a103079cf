package throttle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"
)

// TestManyTenants: more tenants than a call tells of, in two processes, are all served, none
// twice before each was served once, and the limit is used.
func TestManyTenants(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		const many, each = 600, 3
		ls := b.twoProcesses(rate("300/1s"))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		check(b, ls[0].Pause(b.Context(), 100*time.Millisecond)) // all wait when it begins
		began := time.Now()
		for i := range many {
			for range each {
				wg.Go(func() {
					if err := ls[i%2].For(fmt.Sprint("tenant ", i)).Acquire(b.Context(), 1); err != nil {
						b.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
				})
			}
		}
		wg.Wait()
		if took := time.Since(began); took > 5200*time.Millisecond {
			b.Errorf("%d permits of 300/1s took %v, want about 5s", many*each, took)
		}
		for round := range each {
			served := map[int]int{}
			for _, i := range order[:(round+1)*many] {
				served[i]++
			}
			early, missing := 0, 0
			for i := range many {
				if served[i] > round+1 {
					early++
				}
				if served[i] == 0 {
					missing++
				}
			}
			b.Logf("after %d permits: %d tenants have had more than %d, %d none", (round+1)*many, early, round+1, missing)
			if early > many/10 || missing > many/10 {
				b.Errorf("after %d permits %d tenants have had more than %d, and %d none", (round+1)*many, early, round+1, missing)
			}
		}
		b.settled(ls[0], 8*time.Second)
	})
}

// TestTenantsKeepTheLimit: whatever tenants ask for, give up, try and give back, no interval has
// more permits than the limit, and none is lost.
func TestTenantsKeepTheLimit(t *testing.T) {
	t.Parallel()
	for seed := range uint64(quarter(6)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				random := rand.New(rand.NewPCG(seed, 3))
				limit := int64(5 + random.IntN(60))
				interval := time.Duration(100+random.IntN(900)) * time.Millisecond
				ls := b.twoProcesses(Rate{Permits: limit, Interval: interval, Smooth: seed%3 == 2})
				type use struct {
					at time.Duration
					n  int64
				}
				var mu sync.Mutex
				var uses []use
				var wg sync.WaitGroup
				ctx, cancel := context.WithTimeout(b.Context(), 8*time.Second)
				defer cancel()
				for c := range 60 {
					random := rand.New(rand.NewPCG(seed, uint64(c)))
					l := ls[c%2].For(fmt.Sprint(c % 7))
					wg.Go(func() {
						for ctx.Err() == nil {
							n := 1 + random.Int64N(min(limit, 4))
							got := false
							switch random.IntN(4) {
							case 0:
								got, _ = l.TryAcquire(ctx, n)
							case 1:
								got, _ = l.TryAcquireFor(ctx, n, time.Duration(random.Int64N(int64(interval))))
							case 2:
								if r, err := l.Reserve(ctx, n, time.Duration(random.Int64N(int64(interval)))); err == nil && r.OK() {
									if random.IntN(3) == 0 {
										r.Cancel()
									} else {
										got = r.Wait(ctx) == nil
									}
								}
							default:
								short, end := context.WithTimeout(ctx, time.Duration(random.Int64N(int64(2*interval))))
								got = l.Acquire(short, n) == nil
								end()
							}
							if got {
								mu.Lock()
								uses = append(uses, use{time.Since(b.begin), n})
								mu.Unlock()
							}
							time.Sleep(5 * time.Millisecond)
						}
					})
				}
				wg.Wait()
				slices.SortFunc(uses, func(a, b use) int { return int(a.at - b.at) })
				all, in, from := int64(0), int64(0), 0
				for _, u := range uses {
					all, in = all+u.n, in+u.n
					for uses[from].at <= u.at-interval {
						in, from = in-uses[from].n, from+1
					}
					if in > limit {
						b.Fatalf("%d permits within %v, the limit is %d", in, interval, limit)
					}
				}
				full := 8 * float64(limit) / interval.Seconds()
				b.Logf("%d permits, %.0f at most, of %d/%v", all, full, limit, interval)
				if float64(all) < 0.85*full { // some were given back too late for others
					b.Errorf("%d permits, want most of %.0f", all, full)
				}
				b.settled(ls[0], 8*time.Second)
				for _, l := range ls {
					if n := l.c.tenants.Waiting(); len(n) > 0 {
						b.Errorf("%q still wait", n)
					}
				}
			})
		})
	}
}
