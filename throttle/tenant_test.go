package throttle

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// waiters makes a tenant wait with so many requests, until the returned function is called, which
// returns when they have left.
func (b *bench) waiters(l *Limiter, n int) (leave func()) {
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() { _ = l.Acquire(ctx, 1) })
	}
	leave = func() {
		cancel()
		wg.Wait()
	}
	b.Cleanup(leave)
	return leave
}

// settled waits until Redis knows of nobody who waits for the test's limiter.
func (b *bench) settled(l *Limiter, within time.Duration) {
	b.Helper()
	testkit.Eventually(b, within, "nobody waits", func() bool {
		n, err := b.rdb.HLen(b.Context(), script.TenantKeys(l.name, "", "")[8]).Result()
		return err == nil && n == 0
	})
}

// TestFewBehindMany: a tenant that comes with a few requests after another tenant has come with
// many does not wait for these.
func TestFewBehindMany(t *testing.T) {
	addr := redistest.Start(t)
	bs := [2]*bench{{T: t, rdb: dial(t, addr), begin: time.Now()}, {T: t, rdb: dial(t, addr), begin: time.Now()}}
	many, few := bs[0].limiter(bs[0].client()), bs[1].limiter(bs[1].client())
	check(t, many.SetRate(t.Context(), Rate{Permits: 100, Interval: time.Second}))
	bs[0].waiters(many.For("many"), 1500)
	time.Sleep(200 * time.Millisecond)
	began := time.Now()
	var wg sync.WaitGroup
	for range 15 {
		wg.Go(func() {
			if err := few.For("few").Acquire(t.Context(), 1); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	t.Logf("15 requests behind 1500 took %v", took)
	if took > 1500*time.Millisecond {
		t.Errorf("15 requests behind 1500 of another tenant took %v, want at most 1.5s", took)
	}
}

// TestWeightChanges: a weight that is set while tenants wait takes effect for these, in all
// processes.
func TestWeightChanges(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		ls := b.twoProcesses(b.parsed("300/1s"))
		a, c := &sharer{name: "a", weight: 1, callers: 300, cost: one}, &sharer{name: "c", weight: 1, callers: 300, cost: one}
		time.AfterFunc(4*time.Second, func() { check(b, ls[1].SetWeight(context.Background(), "a", 4)) })
		b.shareFor(ls, 6*time.Second, 10*time.Second, a, c)
		if part := float64(a.got) / float64(a.got+c.got); math.Abs(part-0.8) > 0.02 {
			b.Errorf("with a weight of 4 beside 1 the tenant got %.3f of the limit, want 0.8", part)
		}
		if w, err := b.rdb.HGet(b.Context(), "{"+ls[0].name+"}:weights", "a").Float64(); err != nil || w != 4 {
			b.Errorf("Redis has the weight %v (%v), where throttle set --weight keeps it", w, err)
		}
	})
}

// TestInTurnWithinATenant: requests of one tenant go on in the order in which they came.
func TestInTurnWithinATenant(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("5/1s"))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				check(b, l.For("t").Acquire(b.Context(), 1))
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i/5)
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		for i, n := range order {
			if n != i/5 {
				b.Fatalf("windows were had by requests in the order %v", order)
			}
		}
	})
}

// TestTenantsLeaveNothing: nothing is left of those that have given up, neither reservations nor
// records of who waits, and the others get the whole limit.
func TestTenantsLeaveNothing(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(Rate{Permits: 20, Interval: time.Second, Guard: -1})
		other := b.limiter(b.client())
		leave := b.waiters(l.For("gone"), 300)
		b.waiters(other.For("gone, too"), 10)()
		time.Sleep(300 * time.Millisecond)
		leave()
		b.settled(l, 2*time.Second)
		if n := len(l.c.tenants.Waiting()); n > 0 {
			b.Errorf("%d tenants still wait", n)
		}
		time.Sleep(2 * time.Second)
		began := time.Now()
		for range 20 {
			check(b, other.For("here").Acquire(b.Context(), 1))
		}
		if took := time.Since(began); took > 900*time.Millisecond {
			b.Errorf("20 permits of 20/1s took %v", took)
		}
	})
}

// TestTryAcquireFor: a try takes what is free and nothing for which others wait; a try with a
// timeout waits until its tenant is next, and is denied when the timeout is over.
func TestTryAcquireForATenant(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(rate("10/1s"))
		a := l.For("a")
		for range 10 {
			b.expectTry(a, 1, true)
		}
		began := time.Now()
		b.expectTry(a, 1, false)
		if took := time.Since(began); took > 200*time.Millisecond {
			b.Errorf("a try took %v", took)
		}
		if ok, err := a.TryAcquireFor(b.Context(), 1, 300*time.Millisecond); ok || err != nil {
			b.Errorf("%v, %v with 300ms to wait, want false", ok, err)
		}
		if ok, err := a.TryAcquireFor(b.Context(), 1, 3*time.Second); !ok || err != nil {
			b.Errorf("%v, %v with 3s to wait, want true", ok, err)
		}
		b.waiters(l.For("crowd"), 200)
		time.Sleep(2 * time.Second)
		got := 0
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
			if b.try(l.For("crowd"), 1) {
				got++
			}
		}
		if got > 0 {
			b.Errorf("%d tries of a tenant went past those of it who wait", got)
		}
	})
}

// TestReserveForATenant: permits are reserved when the tenant is nearly next, and what is given
// back is not charged to the tenant.
func TestReserveForATenant(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(rate("10/1s"))
		a := l.For("a")
		for range 10 {
			check(b, a.Acquire(b.Context(), 1))
		}
		r, err := a.Reserve(b.Context(), 1, 0)
		check(b, err)
		if r.OK() {
			b.Errorf("reserved at once where nothing is free")
		}
		r, err = a.Reserve(b.Context(), 1, 2*time.Second)
		check(b, err)
		if !r.OK() || r.Delay() > 200*time.Millisecond {
			b.Fatalf("reserved: %v, for in %v, want some tens of ms", r.OK(), r.Delay())
		}
		r.Cancel()
		time.Sleep(1100 * time.Millisecond)
		r, err = a.Reserve(b.Context(), 3, time.Second)
		check(b, err)
		check(b, r.Wait(b.Context()))
		check(b, a.Release(b.Context(), 3))
		b.settled(l, 8*time.Second)
		time.Sleep(100 * time.Millisecond)
		b.expectAvailable(l, 10)
		f, err := b.rdb.ZScore(b.Context(), script.TenantKeys(l.name, "", "")[6], "a").Result()
		check(b, err)
		if f != 10 {
			b.Errorf("the tenant is charged for %v permits, want the 10 that it has had", f)
		}
	})
}

// TestTenantCreates: LimiterWithRate creates the limiter for tenants, too. They share it from the
// first permit on, and get no more than it gives.
func TestTenantCreates(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		rdb := b.slowly()
		rdb.there.Store(int64(ms(1))) // so that all have come when the first call is served
		l, err := b.clientOf(rdb).LimiterWithRate(b.name(), rate("10/10s"))
		check(b, err)
		many, few := &sharer{name: "a", callers: 200, cost: one}, &sharer{name: "b", callers: 5, cost: one}
		b.shareFor([]*Limiter{l}, 0, 2*time.Second, many, few)
		if many.got+few.got != 10 || few.got < 4 {
			b.Errorf("200 requests of a tenant had %d permits of 10, and 5 of another %d", many.got, few.got)
		}
	})
}

// TestChangesReachTenants: those who wait learn at once that a pause is over.
func TestChangesReachTenants(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l, other := b.limited(rate("10/1s")), b.limiter(b.client())
		check(b, l.Pause(b.Context(), time.Hour))
		done := make(chan time.Time)
		go func() {
			if err := l.For("a").Acquire(b.Context(), 1); err != nil {
				b.Error(err)
			}
			done <- time.Now()
		}()
		b.until(510 * time.Millisecond) // it has just checked anyway
		resumed := time.Now()
		check(b, other.Resume(b.Context()))
		if took := (<-done).Sub(resumed); took > 100*time.Millisecond {
			b.Errorf("a tenant went on %v after the pause was over", took)
		}
	})
}

// TestTenantsBesideOthers: callers without a tenant, who reserve far ahead, leave tenants a part
// of the limit.
func TestTenantsBesideOthers(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		ls := b.twoProcesses(rate("100/1s"))
		ctx, cancel := context.WithCancel(b.Context())
		defer cancel()
		var wg sync.WaitGroup
		defer wg.Wait()
		for range 500 {
			wg.Go(func() {
				for ls[0].Acquire(ctx, 1) == nil {
				}
			})
		}
		a := &sharer{name: "a", callers: 100, cost: one}
		b.shareFor(ls[1:], 2*time.Second, 12*time.Second, a)
		cancel()
		b.Logf("%d of 1000", a.got)
		if a.got < 100 {
			b.Errorf("a tenant beside 500 callers without one got %d of 1000 permits", a.got)
		}
	})
}
