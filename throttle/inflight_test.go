package throttle

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
	"github.com/redis/go-redis/v9"
)

// inFlight is c's view of the test's limit in flight.
func (b *bench) inFlight(c *Client, name string, n int64) *InFlight {
	b.Helper()
	f, err := c.InFlight(b.name()+name, Slots{Limit: n})
	check(b, err)
	return f
}

func (b *bench) hold(f *InFlight, id string) *Lease {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	l, err := f.Acquire(ctx, id)
	check(b, err)
	return l
}

// TestSlotsAreLimited: no more hold a slot than the limit says, in one process and in several;
// those who wait get the next slot that is released, in the order of arrival.
func TestSlotsAreLimited(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		fs := []*InFlight{b.inFlight(b.client(), "", 2), b.inFlight(b.client(), "", 2)}
		held := []*Lease{b.hold(fs[0], "a"), b.hold(fs[1], "b")}
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		leases := make(chan *Lease, 10)
		for i := range 10 {
			wg.Go(func() {
				l := b.hold(fs[i%2], fmt.Sprint("w", i))
				mu.Lock()
				order = append(order, i)
				mu.Unlock()
				leases <- l
			})
			time.Sleep(time.Millisecond) // each comes at a time of its own, also under fake time
			testkit.Eventually(b, 5*time.Second, "they come one after the other", func() bool {
				n, err := b.rdb.ZCard(b.Context(), "{"+fs[0].Name()+"}:line").Result()
				return err == nil && n == int64(i+1)
			})
		}
		for n := range 10 {
			if len(leases) != 0 {
				b.Fatalf("%d more hold a slot than the limit allows", len(leases))
			}
			check(b, held[n].Release(b.Context()))
			l := <-leases
			check(b, l.Context().Err())
			held = append(held, l)
		}
		wg.Wait()
		for i, n := range order {
			if i != n {
				b.Fatalf("in the order %v, want that of arrival", order)
			}
		}
		for _, l := range held {
			check(b, l.Release(b.Context()))
			if cause := context.Cause(l.Context()); !errors.Is(cause, ErrReleased) {
				b.Errorf("the lease ended with %v, want %v", cause, ErrReleased)
			}
		}
	})
}

// cut is a way to Redis that can be cut off.
type cut struct {
	redis.Scripter
	off atomic.Bool
}

var errCut = errors.New("cut off")

func (c *cut) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if c.off.Load() {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(errCut)
		return cmd
	}
	return c.Scripter.EvalSha(ctx, sha, keys, args...)
}

// TestLeaseOfTheDead: the slot of a holder that is gone is free when its lease has run out, and
// not before the holder's context has ended; a slot that is renewed stays held.
func TestLeaseOfTheDead(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		way := &cut{Scripter: b.rdb}
		dead, err := New(way, Options{})
		check(b, err)
		defer dead.Close()
		f, err := dead.InFlight(b.name(), Slots{Limit: 1})
		check(b, err)
		l := b.hold(f, "dead")
		b.until(40 * time.Second) // it is renewed
		check(b, l.Context().Err())
		way.off.Store(true)
		cutAt := time.Now()
		ended := make(chan time.Time, 1)
		context.AfterFunc(l.Context(), func() { ended <- time.Now() })
		next := b.hold(b.inFlight(b.client(), "", 1), "next")
		took := time.Since(cutAt)
		if took < 10*time.Second || took > 16*time.Second {
			b.Errorf("the slot was free %v after the holder was cut off, want what was left of 15s", took)
		}
		if end := <-ended; !end.Before(time.Now()) {
			b.Errorf("the holder's context ended %v after the slot was another's", time.Until(end))
		}
		if !errors.Is(context.Cause(l.Context()), ErrLeaseEnded) {
			b.Errorf("the cause is %v", context.Cause(l.Context()))
		}
		check(b, next.Release(b.Context()))
	})
}

// TestLeaseOfAClosedClient: a lease ends with its Client, and says why.
func TestLeaseOfAClosedClient(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		c := b.client()
		l := b.hold(b.inFlight(c, "", 1), "a")
		check(b, c.Close())
		<-l.Context().Done()
		if err := context.Cause(l.Context()); !errors.Is(err, ErrClosed) {
			b.Errorf("it ended with %v", err)
		}
		of, named := errors.AsType[*Error](l.Release(b.Context()))
		if !named || of.Limiter != b.name() || !errors.Is(of, ErrClosed) {
			b.Errorf("it is released with %v, want ErrClosed that names %q", of, b.name())
		}
	})
}

// TestStaleReleaseDoesNothing: a holder whose slot now belongs to another takes nothing from that
// one.
func TestStaleReleaseDoesNothing(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		way := &cut{Scripter: b.rdb}
		dead, err := New(way, Options{})
		check(b, err)
		defer dead.Close()
		f, err := dead.InFlight(b.name(), Slots{Limit: 1, Lease: 3 * time.Second})
		check(b, err)
		stale := b.hold(f, "same")
		way.off.Store(true)
		g := b.inFlight(b.client(), "", 1)
		b.until(4 * time.Second)
		l := b.hold(g, "same")
		way.off.Store(false)
		_ = stale.Release(b.Context())
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		if other, err := g.Acquire(ctx, "other"); err == nil {
			b.Errorf("a stale release freed the slot of another: %v", other)
		}
		check(b, l.Context().Err())
		check(b, l.Release(b.Context()))
	})
}

// TestReentry: the same id takes its slot over, at once within a process. From another process it
// does so when the earlier lease is released or has run out: the two never hold the slot at the
// same time, and nobody else gets it in between.
func TestReentry(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		f, g := b.inFlight(b.client(), "", 1), b.inFlight(b.client(), "", 1)
		first := b.hold(f, "job")
		second := b.hold(f, "job")
		if !errors.Is(context.Cause(first.Context()), ErrReentered) {
			b.Errorf("the earlier lease has %v", context.Cause(first.Context()))
		}
		_ = first.Release(b.Context())
		check(b, second.Context().Err())
		got := make(chan *Lease, 2)
		go func() { got <- b.hold(f, "another") }()
		time.Sleep(50 * time.Millisecond)
		go func() { got <- b.hold(g, "job") }()
		time.Sleep(700 * time.Millisecond)
		if len(got) > 0 {
			b.Fatal("two hold the only slot")
		}
		check(b, second.Release(b.Context()))
		third := <-got
		check(b, third.Context().Err())
		if third.lease.ID() != "job" {
			b.Fatalf("%q got the slot, want the one that came with the same id", third.lease.ID())
		}
		check(b, third.Release(b.Context()))
		check(b, (<-got).Release(b.Context()))
	})
}

// TestSlotsAndPermits: five limits of all kinds, and many callers that take some of them at
// random: none is exceeded, nobody is stuck, and nothing is left.
func TestSlotsAndPermits(t *testing.T) {
	times := 3000
	if os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" {
		times = 100_000
	}
	onRealRedis(t, func(b *bench) { randomAcquisitions(b, times, 3, 32) })
}

// randomAcquisitions takes some of five limits at random, so many times.
func randomAcquisitions(b *bench, times, clients, workers int) {
	sizes := []int64{7, 3, 1}
	running := make([]atomic.Int64, len(sizes))
	var done atomic.Int64
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(b.Context(), 10*time.Minute)
	defer cancel()
	for range clients {
		c := b.client()
		var fs []*InFlight
		for i, n := range sizes {
			fs = append(fs, b.inFlight(c, fmt.Sprint("s", i), n))
		}
		fast, err := c.LimiterWithRate(b.name()+"fast", Rate{Permits: 5000, Interval: 100 * time.Millisecond})
		check(b, err)
		slow, err := c.LimiterWithRate(b.name()+"slow", Rate{Permits: 100, Interval: 50 * time.Millisecond})
		check(b, err)
		rates := [][]*Limiter{nil, {fast}, {slow}, {fast, slow}}
		for w := range workers {
			wg.Go(func() {
				for n := done.Add(1); n <= int64(times); n = done.Add(1) {
					some := rand.IntN(7) + 1
					var take []*InFlight
					for i := range fs {
						if some&(1<<i) != 0 {
							take = append(take, fs[i])
						}
					}
					ls := rates[rand.IntN(len(rates))]
					var g *SlotGroup
					var err error
					ns := make([]int64, len(ls))
					if len(ls) == 0 {
						g, err = c.SlotGroup(take...)
					} else {
						var r *Group
						r, err = c.Group(ls...)
						check(b, err)
						for i := range ns {
							ns[i] = 1 + rand.Int64N(3)
						}
						g, err = r.WithSlots(take...)
					}
					check(b, err)
					within, cancel := ctx, context.CancelFunc(func() {})
					if rand.IntN(10) == 0 { // some give up
						within, cancel = context.WithTimeout(ctx, rand.N(20*time.Millisecond))
					}
					l, err := g.AcquireEach(within, fmt.Sprint(w, ":", n), ns...)
					cancel()
					if err != nil {
						if within == ctx {
							b.Error(err)
						}
						continue
					}
					for i := range fs {
						if some&(1<<i) != 0 && running[i].Add(1) > sizes[i] {
							b.Errorf("more than %d at a time", sizes[i])
						}
					}
					if rand.IntN(4) == 0 {
						time.Sleep(rand.N(time.Millisecond))
					}
					for i := range fs {
						if some&(1<<i) != 0 {
							running[i].Add(-1)
						}
					}
					if rand.IntN(2) == 0 {
						check(b, l.Release(ctx))
					} else {
						l.lease.Free()
					}
				}
			})
		}
	}
	wg.Wait()
	for i, n := range sizes {
		c := b.client()
		f := b.inFlight(c, fmt.Sprint("s", i), n)
		for k := range n { // all are free again
			within, cancel := context.WithTimeout(ctx, 5*time.Second)
			_, err := f.Acquire(within, fmt.Sprint("last", k))
			cancel()
			check(b, err)
		}
	}
}

// TestSlotThatRedisLost: Redis has evicted the slots of a limit, but not who held them. A caller
// that comes with the id of one of those holders is not stuck.
func TestSlotThatRedisLost(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		f, g := b.inFlight(b.client(), "", 2), b.inFlight(b.client(), "", 2)
		first := b.hold(f, "job")
		check(b, b.rdb.Del(b.Context(), "{"+b.name()+"}:slots").Err())
		second := b.hold(g, "job")
		check(b, second.Release(b.Context()))
		_ = first.Release(b.Context())
	})
}

// TestReentryThatIsRefused: a holder of two slots asks again with its id, and is refused because another has claimed the id at one
// of the limits. The lease that it has goes on, so nobody else gets its other slot.
func TestReentryThatIsRefused(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		c, other := b.client(), b.client()
		one, two := b.inFlight(c, ":one", 1), b.inFlight(c, ":two", 1)
		both, err := c.SlotGroup(one, two)
		check(b, err)
		first, err := both.AcquireEach(b.Context(), "job")
		check(b, err)
		ctx, cancel := context.WithCancel(b.Context())
		var claims sync.WaitGroup
		ask := func(acquire func(context.Context, string) (*Lease, error)) {
			claims.Go(func() {
				if l, err := acquire(ctx, "job"); err == nil {
					_ = l.Release(b.Context())
				}
			})
		}
		ask(b.inFlight(other, ":two", 1).Acquire)
		held := "{" + b.name() + ":two}:held"
		for deadline := time.Now().Add(10 * time.Second); !strings.Contains(b.rdb.HGet(b.Context(), held, "job").Val(), " s "); <-time.After(time.Millisecond) {
			if time.Now().After(deadline) {
				b.Fatal("the other has not claimed the id")
			}
		}
		ask(func(ctx context.Context, id string) (*Lease, error) { return both.AcquireEach(ctx, id) })
		short, end := context.WithTimeout(b.Context(), 500*time.Millisecond)
		defer end()
		if l, err := b.inFlight(other, ":one", 1).Acquire(short, "another"); err == nil && first.Context().Err() == nil {
			b.Error("two hold the only slot")
			_ = l.Release(b.Context())
		}
		cancel()
		claims.Wait()
		check(b, first.Release(b.Context()))
	})
}

// TestReleaseBesideSpoilt: a slot goes back also if another limit of its group makes no sense any more.
func TestReleaseBesideSpoilt(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		c := b.client()
		well, spoilt := b.inFlight(c, ":well", 1), b.inFlight(c, ":spoilt", 1)
		both, err := c.SlotGroup(well, spoilt)
		check(b, err)
		l, err := both.AcquireEach(b.Context(), "job")
		check(b, err)
		check(b, b.rdb.HSet(b.Context(), b.name()+":spoilt", "in_flight", "many").Err())
		err = l.Release(b.Context())
		if at, ok := errors.AsType[*Error](err); !ok || at.Limiter != spoilt.Name() || !errors.Is(err, ErrInvalidSlots) {
			b.Errorf("Release: %v, want it about %s", err, spoilt.Name())
		}
		ctx, cancel := context.WithTimeout(b.Context(), 3*time.Second)
		defer cancel()
		next, err := b.inFlight(b.client(), ":well", 1).Acquire(ctx, "next")
		check(b, err)
		check(b, next.Release(b.Context()))
	})
}

// TestSlotGroupNamesWhatIsWrong: an error names the limit of the group that makes no sense, not the first.
func TestSlotGroupNamesWhatIsWrong(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		for spoilt, fields := range map[string][]any{
			":rated": {"rate", 10, "interval", 1000, "type", 0},
			":many":  {"in_flight", "many", "lease", 3000},
		} {
			c := b.client()
			group, err := c.SlotGroup(b.inFlight(c, ":well"+spoilt, 1), b.inFlight(c, spoilt, 1))
			check(b, err)
			l, err := group.AcquireEach(b.Context(), "job")
			check(b, err)
			check(b, l.Release(b.Context()))
			check(b, b.rdb.HSet(b.Context(), b.name()+spoilt, fields...).Err())
			_, err = group.AcquireEach(b.Context(), "job")
			at, ok := errors.AsType[*Error](err)
			if !errors.Is(err, ErrInvalidSlots) || !ok || at.Limiter != b.name()+spoilt {
				b.Errorf("%s is wrong: %v", spoilt, err)
			}
		}
	})
}
