package throttle

import (
	"context"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// sharer is a tenant of a test and what it has got.
type sharer struct {
	name    string
	weight  float64
	callers int
	cost    func(n int) int64
	got     int64
}

// shareFor makes tenants ask for permits over and over, each through one of some limiters, and
// counts what they get from one time to another.
func (b *bench) shareFor(ls []*Limiter, from, to time.Duration, tenants ...*sharer) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	var mu sync.Mutex
	var wg sync.WaitGroup
	if from > 0 {
		check(b, ls[0].Pause(ctx, 100*time.Millisecond)) // all wait when it begins
	}
	begin := time.Now()
	for i, of := range tenants {
		for c := range of.callers {
			l := ls[(i+c)%len(ls)].For(of.name)
			wg.Go(func() {
				for n := 0; ; n++ {
					k := of.cost(n)
					if l.Acquire(ctx, k) != nil {
						return
					}
					if at := time.Since(begin); at >= from && at < to {
						mu.Lock()
						of.got += k
						mu.Unlock()
					}
				}
			})
		}
	}
	time.Sleep(to)
	cancel()
	wg.Wait()
}

// twoProcesses are the test's limiter as two Clients see it.
func (b *bench) twoProcesses(r Rate) []*Limiter {
	b.Helper()
	ls := []*Limiter{b.limiter(b.client()), b.limiter(b.client())}
	check(b, ls[0].SetRate(b.Context(), r))
	return ls
}

// parsed is "10/1s", or "10/1s smooth".
func (b *bench) parsed(limit string) Rate {
	b.Helper()
	text, smooth := strings.CutSuffix(limit, " smooth")
	r, err := ParseRate(text)
	check(b, err)
	r.Smooth = smooth
	return r
}

// perSecond is how many permits a limit gives, with its guard.
func perSecond(r Rate) float64 {
	return float64(r.Permits) / (r.Interval + max(r.Interval/100, 3*time.Millisecond)).Seconds()
}

func one(int) int64 { return 1 }

// someOf are costs from 1 to n, at random.
func someOf(seed uint64, n int64) func(int) int64 {
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 1))
	return func(int) int64 {
		mu.Lock()
		defer mu.Unlock()
		return 1 + random.Int64N(n)
	}
}

// jain is Jain's index of what tenants got by weight: 1 if all got the same.
func jain(tenants []*sharer) float64 {
	sum, squares := 0.0, 0.0
	for _, t := range tenants {
		x := float64(t.got) / t.weight
		sum, squares = sum+x, squares+x*x
	}
	return sum * sum / (float64(len(tenants)) * squares)
}

// TestTenantsShareByWeight: three tenants that always wait, in two processes, get permits by
// their weights, whatever one request of theirs costs.
func TestTenantsShareByWeight(t *testing.T) {
	t.Parallel()
	limits := []string{"300/1s", "1000/1s", "40/100ms", "300/1s smooth"}
	for _, limit := range limits[:quarter(4)] {
		t.Run(limit, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				r := b.parsed(limit)
				ls := b.twoProcesses(r)
				callers := int(r.Permits) // as many as the permits of one interval, for all of them
				tenants := []*sharer{
					{name: "five", weight: 5, callers: callers, cost: someOf(1, 3)},
					{name: "three", weight: 3, callers: callers, cost: someOf(2, 9)},
					{name: "one", weight: 1, callers: callers, cost: one},
				}
				for _, of := range tenants {
					check(b, ls[0].SetWeight(b.Context(), of.name, of.weight))
				}
				b.shareFor(ls, 3*time.Second, 13*time.Second, tenants...)
				all := tenants[0].got + tenants[1].got + tenants[2].got
				for _, of := range tenants {
					off := float64(of.got)/(float64(all)*of.weight/9) - 1
					b.Logf("%s: %d of %d: %.2f %% off", of.name, of.got, all, 100*off)
					if math.Abs(off) > 0.02 {
						b.Errorf("tenant %s got %d of %d permits: %.1f %% off its share", of.name, of.got, all, 100*off)
					}
				}
				b.Log("calls", ls[0].c.Stats().Calls, ls[1].c.Stats().Calls)
				if j := jain(tenants); j < 0.99 {
					b.Errorf("Jain's index by weight is %.4f", j)
				}
				if full := 10 * perSecond(r); float64(all) < 0.97*full {
					b.Errorf("%d permits in 10s, want about %.0f", all, full)
				}
			})
		})
	}
}

// TestOneTenantAlone: it gets as much of the limit as callers without a tenant.
func TestOneTenantAlone(t *testing.T) {
	for _, limit := range shareAlone[:quarter(4)] {
		t.Run(limit, func(t *testing.T) {
			underFakeTime(t, func(b *bench) { b.aloneAsWithout(b.parsed(limit)) })
		})
	}
}

// TestOneTenantAloneRealRedis: the same on a real Redis, where the engine's tests run alone. What a process gets late here it
// does not get in these 4 s: a tenant's permits are taken shortly before they are due.
func TestOneTenantAloneRealRedis(t *testing.T) {
	limits := shareAlone
	if !nightly() {
		limits = limits[:1]
	}
	for _, limit := range limits {
		t.Run(limit, func(t *testing.T) {
			onRealRedis(t, func(b *bench) { b.aloneAsWithout(b.parsed(limit)) })
		})
	}
}

var shareAlone = []string{"100/1s", "1000/1s", "20/100ms", "300/1s smooth"}

// aloneAsWithout compares what a tenant gets that is alone with what callers get without a
// tenant.
func (b *bench) aloneAsWithout(r Rate) {
	b.Helper()
	ls := b.twoProcesses(r)
	alone := &sharer{name: "alone", callers: 200, cost: one}
	b.shareFor(ls, time.Second, 5*time.Second, alone)
	check(b, ls[0].SetRate(b.Context(), r))
	ctx, cancel := context.WithCancel(b.Context())
	var without atomic.Int64
	var wg sync.WaitGroup
	begin := time.Now()
	for i := range 200 {
		wg.Go(func() {
			for ls[i%2].Acquire(ctx, 1) == nil {
				if at := time.Since(begin); at >= time.Second && at < 5*time.Second {
					without.Add(1)
				}
			}
		})
	}
	time.Sleep(5 * time.Second)
	cancel()
	wg.Wait()
	b.Logf("%d permits in 4s, without a tenant %d; %+v, %+v", alone.got, without.Load(), ls[0].c.Stats(), ls[1].c.Stats())
	if want := min(float64(without.Load()), 4*perSecond(r)); float64(alone.got) < 0.99*want {
		b.Errorf("a tenant that is alone got %d permits, want at least 99 %% of %.0f", alone.got, want)
	}
}

// TestNotHeldAgainst: what a tenant got while it was alone is not held against it when another
// comes, and the other has no credit for the time when it asked for nothing.
func TestNotHeldAgainst(t *testing.T) {
	t.Parallel()
	for _, callers := range []int{1, 400}[:quarter(2)] {
		t.Run(strconv.Itoa(callers), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				ls := b.twoProcesses(b.parsed("300/1s"))
				ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
				defer cancel()
				for range callers {
					go func() {
						for ls[0].For("first").Acquire(ctx, 1) == nil {
							time.Sleep(10 * time.Millisecond)
						}
					}()
				}
				time.Sleep(20 * time.Second)
				a, c := &sharer{name: "first", weight: 1, callers: 300, cost: one}, &sharer{name: "second", weight: 1, callers: 300, cost: one}
				b.shareFor(ls, time.Second, 5*time.Second, a, c)
				if part := float64(a.got) / float64(a.got+c.got); math.Abs(part-0.5) > 0.02 {
					b.Errorf("the one that was alone before gets %.3f of the limit, want half", part)
				}
			})
		})
	}
}

// TestPlentyIsCheap: if a limit has much more than anybody asks for, a request of a tenant costs
// nearly no more calls than one without.
func TestPlentyIsCheap(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(b.parsed("10000/1s"))
		for range 100 {
			check(b, l.For("a").Acquire(b.Context(), 1))
			time.Sleep(2 * time.Millisecond)
		}
		if calls := l.c.Stats().Calls; calls > 140 {
			b.Errorf("%d calls for 100 requests one by one", calls)
		}
	})
}
