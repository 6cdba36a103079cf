package throttle

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// grouped are limiters of one Client with these rates, and their group.
func (b *bench) grouped(c *Client, rates ...Rate) ([]*Limiter, *Group) {
	b.Helper()
	var ls []*Limiter
	for i, r := range rates {
		l, err := c.LimiterWithRate(b.name()+string(rune('a'+i)), r)
		check(b, err)
		ls = append(ls, l)
	}
	g, err := c.Group(ls...)
	check(b, err)
	return ls, g
}

func TestGroupIsAllOrNothing(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx := b.Context()
		ls, g := b.grouped(b.client(), rate("10/5s"), perClient("5/5s"), rate("3/5s"))
		if ok, err := g.TryAcquire(ctx, 3); !ok || err != nil {
			b.Fatalf("TryAcquire(3): %v, %v", ok, err)
		}
		if ok, err := g.TryAcquire(ctx, 1); ok || err != nil {
			b.Fatalf("TryAcquire(1): %v, %v", ok, err)
		}
		for i, want := range []int64{7, 2, 0} {
			b.expectAvailable(ls[i], want)
		}
		r, err := g.Reserve(ctx, 1, 0)
		check(b, err)
		if r.OK() || r.Limiter() != ls[2].name {
			b.Errorf("refused by %s, want %s", r.Limiter(), ls[2].name)
		}
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		b.expectError(g.Acquire(soon, 1), ErrExceedsDeadline, ls[2].name)
		b.expectError(g.Acquire(ctx, 4), ErrExceedsRate, ls[2].name)
		b.expectError(g.AcquireEach(ctx, 1, 6, 1), ErrExceedsRate, ls[1].name)
		b.expectError(g.AcquireEach(ctx, 1, 1), ErrInvalidPermits, ls[0].name)
		b.expectError(g.AcquireEach(ctx, 1, 0, 1), ErrInvalidPermits, ls[1].name)
		for i, want := range []int64{7, 2, 0} {
			b.expectAvailable(ls[i], want)
		}
	})
}

// TestGroupReleases: what a group took goes back to each of its members, in one step, and those
// who wait for it get it.
func TestGroupReleases(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		ctx, c := b.Context(), b.client()
		ls, g := b.grouped(c, rate("10/1m"), perClient("5/1m"), rate("3/1m"))
		expect := func(want ...int64) {
			b.Helper()
			for i, n := range want {
				b.expectAvailable(ls[i], n)
			}
		}
		if ok, err := g.TryAcquireEach(ctx, 0, 4, 5, 3); !ok || err != nil {
			b.Fatalf("TryAcquireEach: %v, %v", ok, err)
		}
		if ok, err := g.TryAcquireEach(ctx, 5*time.Second, 1, 1, 1); ok || err != nil {
			b.Errorf("TryAcquireEach of a full group: %v, %v", ok, err)
		}
		expect(6, 0, 0)
		check(b, g.ReleaseEach(ctx, 2, 0, 1))
		expect(8, 0, 1)
		check(b, g.Release(ctx, 2))
		expect(10, 2, 3)            // never more than was taken
		check(b, g.Release(ctx, 0)) // nothing

		b.expectError(g.ReleaseEach(ctx, 1, 1), ErrInvalidPermits, ls[0].name)
		b.expectError(g.ReleaseEach(ctx, 1, -1, 1), ErrInvalidPermits, ls[1].name)
		_, err := g.TryAcquireEach(ctx, 0, 1, 1)
		b.expectError(err, ErrInvalidPermits, ls[0].name)
		_, err = g.TryAcquireEach(ctx, time.Second, 1, 6, 1)
		b.expectError(err, ErrExceedsRate, ls[1].name)
		expect(10, 2, 3)

		check(b, g.AcquireEach(ctx, 1, 1, 3))
		waiting := make(chan error, 1)
		go func() { waiting <- ls[2].Acquire(ctx, 2) }()
		testkit.Eventually(b, 5*time.Second, "a reservation a minute ahead, and a subscription to releases", func() bool {
			u, err := ls[2].Inspect(ctx)
			return err == nil && u.Reserved == 2 && c.core.Hears()
		})
		check(b, g.ReleaseEach(ctx, 0, 0, 2))
		select {
		case err := <-waiting:
			check(b, err)
		case <-time.After(5 * time.Second):
			b.Error("who waits for what was released does not get it")
		}
	})
}

func TestGroupWaitsForTheTightest(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		ctx := b.Context()
		ls, g := b.grouped(b.client(), rate("10/1s"), rate("2/3s"))
		check(b, g.AcquireEach(ctx, 5, 1))
		check(b, g.AcquireEach(ctx, 5, 1))
		check(b, g.AcquireEach(ctx, 10, 2))
		if took := time.Since(b.begin); took != 3*time.Second {
			b.Errorf("the third came after %v, want 3s", took)
		}
		check(b, g.Pause(ctx, ms(500)))
		b.expectTry(ls[0], 1, false)
		check(b, g.Resume(ctx))
		b.until(ms(4500))
		b.expectTry(ls[0], 1, true)
	})
}

func TestGroupNamesTheMissingMember(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		c := b.client()
		ls, _ := b.grouped(c, rate("10/1s"))
		missing, err := c.Limiter(b.name() + "missing")
		check(b, err)
		g, err := c.Group(ls[0], missing)
		check(b, err)
		b.expectError(g.Acquire(b.Context(), 1), ErrNotInitialized, missing.name)
		if n := len(b.keys()); n != 0 {
			b.Errorf("%v were created by a group that was refused", b.keys())
		}
	})
}

func TestInvalidGroups(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		c, other := b.client(), b.client()
		l := b.limiter(c)
		cluster, err := New(b.rdb, Options{Cluster: true})
		check(b, err)
		named := func(c *Client, name string) *Limiter {
			l, err := c.Limiter(name)
			check(b, err)
			return l
		}
		for name, make := range map[string]func() (*Group, error){
			"no members":    func() (*Group, error) { return c.Group() },
			"one twice":     func() (*Group, error) { return c.Group(l, b.limiter(c)) },
			"two Clients":   func() (*Group, error) { return c.Group(l, named(other, "other")) },
			"several slots": func() (*Group, error) { return cluster.Group(named(cluster, "{a}x"), named(cluster, "{b}y")) },
		} {
			if _, err := make(); !errors.Is(err, ErrInvalidGroup) {
				b.Errorf("%s: %v", name, err)
			}
		}
		if _, err := cluster.Group(named(cluster, "{a}x"), named(cluster, "{a}y")); err != nil {
			b.Error(err)
		}
	})
}

func TestCalendarWindows(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := Rate{Permits: 3, Interval: time.Minute, Window: Calendar, Offset: 10 * time.Second, Guard: time.Second}
		l := b.limited(r)
		b.until(5 * time.Second) // the clock began at midnight: five seconds before a boundary
		b.expectTry(l, 3, true)
		b.until(8900 * time.Millisecond)
		b.expectTry(l, 1, false)
		check(b, l.Acquire(b.Context(), 3))
		if at := time.Since(b.begin); at != 11*time.Second {
			b.Errorf("the next window's came at %v, want 11s: a guard after its beginning", at)
		}
		check(b, l.Acquire(b.Context(), 1))
		if at := time.Since(b.begin); at != 71*time.Second {
			b.Errorf("and the one after that at %v, want 71s", at)
		}
		b.expectAvailable(l, 2)
		b.until(129500 * time.Millisecond)
		b.expectAvailable(l, 0) // within a guard of the boundary
	})
}

func TestSmoothSpreadsPermits(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := rate("10/1s")
		r.Smooth = true
		l := b.limited(r)
		for i, n := range []int64{1, 1, 2, 1} {
			check(b, l.Acquire(b.Context(), n))
			if at, want := time.Since(b.begin), []time.Duration{0, ms(100), ms(300), ms(400)}[i]; at != want {
				b.Errorf("request %d for %d came at %v, want %v", i, n, at, want)
			}
		}
	})
}
