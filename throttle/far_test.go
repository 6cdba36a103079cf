package throttle

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/wire"
	"github.com/jobthrottle/jobthrottle/throttle/httplimit"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// A Redis that is far away gives nearly all of the limit, and never more while
// round trips vary by less than half the guard.
func TestRedisFarAway(t *testing.T) {
	if !nightly() { // then on a real Redis, too
		t.Parallel()
	}
	const length, window, halfGuard = 10 * time.Second, time.Second, 5 * time.Millisecond
	fars := []struct {
		roundTrip time.Duration
		share     float64 // of whole bursts, one every 1.01s
	}{{ms(120), 0.92}, {ms(10), 0.97}, {ms(2), 0.98}, {ms(30), 0.97}, {ms(70), 0.95}, {ms(250), 0.85}}
	for _, far := range fars[:quarter(len(fars))] {
		for name, rates := range map[string][]string{"50 a second": {"50/1s"}, "1000 a second": {"1000/1s"}, "group": {"50/1s", "1000/1s"}} {
			t.Run(far.roundTrip.String()+"/"+name, func(t *testing.T) {
				atFullSize(t, func(b *bench) {
					if withRace && b.fake == nil {
						b.Skip("8 x 64 callers have 5 ms to take what comes at once: .ci/nightly runs this without the race detector")
					}
					b.loadScripts()
					limiters := func(c *Client) (ls []*Limiter) {
						for _, r := range rates {
							ls = append(ls, must(c.Limiter(b.name()+":"+r)))
						}
						return ls
					}
					for i, l := range limiters(b.client()) {
						check(b, l.SetRate(b.Context(), guarded(rates[i])))
					}
					var processes []httplimit.Acquirer
					for range 8 {
						way := b.away(far.roundTrip, halfGuard-ms(1))
						if fake, ok := way.(*distant); ok {
							fake.connects = 3
						}
						c := b.clientOf(way)
						processes = append(processes, must(c.Group(limiters(c)...)))
					}
					ctx, cancel := context.WithTimeout(b.Context(), length)
					defer cancel()
					starts := used(ctx, 8*64, processes...)
					ideal := wholeBursts(guarded(rates[0]), length)
					b.Logf("%d permits of %d, %d in the busiest second", len(starts), ideal, busiest(starts, window))
					if float64(len(starts)) < far.share*float64(ideal) {
						b.Errorf("%d permits of %d, want %.0f %%", len(starts), ideal, 100*far.share)
					}
					if n := busiest(starts, window); n > int(guarded(rates[0]).Permits) {
						b.Errorf("%d permits in one second", n)
					}
				})
			})
		}
	}
}

// wholeBursts is how many permits a limit allows in length: a burst at once, and one each time
// its interval and guard have passed.
func wholeBursts(r Rate, length time.Duration) int {
	return int(r.Permits) * (int((length-1)/(r.Interval+r.guard())) + 1)
}

// loadScripts does what the first process that asks a Redis has done.
func (b *bench) loadScripts() {
	b.Helper()
	for _, s := range []*redis.Script{script.Acquire, script.Fast, script.Epoch} {
		check(b, s.Load(b.Context(), b.rdb).Err())
	}
}

// away is the bench's Redis at a distance. Under fake time, where nothing else makes them
// vary, round trips vary by up to that much.
func (b *bench) away(roundTrip, varies time.Duration) redis.Scripter {
	if b.fake != nil {
		return &distant{Scripter: b.rdb, roundTrip: roundTrip, varies: varies}
	}
	network := must(wire.New(b.rdb.Options().Addr))
	b.Cleanup(func() { network.Close() })
	network.Set(wire.Trouble{Delay: roundTrip})
	return dial(b, network.Addr)
}

// distant is a Redis at a distance. A call that finds no connection idle makes one first: go-redis takes three round trips for
// that (HELLO, and two for CLIENT).
type distant struct {
	redis.Scripter
	roundTrip, varies time.Duration
	connects          time.Duration // round trips for a new connection
	idle              atomic.Int64
}

// travel takes the time of the way there now, and back that of the way back.
func (d *distant) travel() (back func()) {
	if d.idle.Add(-1) < 0 {
		d.idle.Add(1)
		time.Sleep(d.connects * d.roundTrip)
	}
	var more time.Duration
	if d.varies > 0 {
		more = rand.N(d.varies)
	}
	there := d.roundTrip/2 + time.Duration(rand.Float64()*float64(more))
	time.Sleep(there)
	return func() {
		time.Sleep(d.roundTrip + more - there)
		d.idle.Add(1)
	}
}

func (d *distant) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	defer d.travel()()
	return d.Scripter.EvalSha(ctx, sha, keys, args...)
}

func (d *distant) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	defer d.travel()()
	return d.Scripter.Eval(ctx, script, keys, args...)
}

// Processes start together. Round trips take 2 to 6 ms, and those over a new connection 6 ms more. So some replies take longer than
// half the guard. The limit gives nearly all of its bursts all the same, and no more than that: 60 starts, because one in twelve lost most
// of the first.
func TestStartsTogether(t *testing.T) {
	for range 60 {
		underFakeTime(t, func(b *bench) {
			b.loadScripts()
			name := b.limited(guarded("50/1s")).Name()
			var processes []Acquirer
			for range 8 {
				processes = append(processes, must(b.clientOf(&distant{Scripter: b.rdb, roundTrip: ms(2), varies: ms(4), connects: 3}).Limiter(name)))
			}
			ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
			defer cancel()
			time.AfterFunc(2500*time.Millisecond, cancel)
			starts := used(ctx, 8*64, processes...)
			if len(starts) < 147 {
				b.Errorf("%d permits of three bursts of 50", len(starts))
			}
			if n := busiest(starts, time.Second); n > 50 {
				b.Errorf("%d permits in one second", n)
			}
		})
	}
}

// A change of the configuration stops waiters whose Redis is far within 100 ms and a round trip,
// and none of their permits goes unrecorded.
func TestPauseReachesFarClients(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		near := b.limited(guarded("50/1s"))
		const roundTrip = 120 * time.Millisecond
		far := b.limiter(b.clientOf(&distant{Scripter: b.rdb, roundTrip: roundTrip}))
		ctx, cancel := context.WithTimeout(b.Context(), 10*time.Second)
		defer cancel()
		paused := make(chan time.Time, 1)
		time.AfterFunc(4*time.Second, func() {
			check(b, near.Pause(b.Context(), 2*time.Second))
			paused <- time.Now()
		})
		starts := used(ctx, 100, far)
		from := <-paused
		for _, s := range starts {
			if d := s.Sub(from); d > ms(100)+roundTrip && d < 2*time.Second {
				t.Errorf("a permit %v after the pause began", d)
			}
		}
		if n := busiest(starts, time.Second); n > 50 {
			t.Errorf("%d permits in one second", n)
		}
	})
}

// What a reply says about the configuration is as old as its call: a change while it was on its
// way stops the permits that it brings.
func TestPauseOvertakesReply(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		near := b.limited(guarded("1/1s"))
		way := &busyWay{Scripter: b.rdb}
		slow := b.limiter(b.clientOf(way))
		for range 8 {
			check(b, slow.Acquire(b.Context(), 1))
		}
		way.half.Store(int64(ms(500)))
		defer way.half.Store(0)
		time.AfterFunc(ms(600), func() { check(b, near.Pause(b.Context(), 3*time.Second)) })
		began := time.Now()
		check(b, slow.Acquire(b.Context(), 1))
		if d := time.Since(began); d < ms(3600) {
			b.Errorf("a permit after %v, in the pause", d)
		}
	})
}

// busyWay takes as long there, and as long back, as its values say at that time.
type busyWay struct {
	redis.Scripter
	half atomic.Int64
}

func (w *busyWay) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	time.Sleep(time.Duration(w.half.Load()))
	defer func() { time.Sleep(time.Duration(w.half.Load())) }()
	return w.Scripter.EvalSha(ctx, sha, keys, args...)
}

// Calls that were held up do not make a near Redis a far one: then a change would take long to reach this client's waiters,
// and would let grants of all others stand for longer.
func TestHeldUpIsNotFar(t *testing.T) {
	for name, held := range map[string][]time.Duration{
		"the second call":                             {ms(6), ms(200)},
		"the second and the third":                    {ms(6), ms(200), ms(200)},
		"the first and the second":                    {ms(200), ms(200)},
		"the first for long, and the second":          {ms(500), ms(200)},
		"the second and the third after a slow first": {ms(200), ms(150), ms(150)},
	} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				b.limited(guarded("50/1h"))
				way := &heldUp{Scripter: b.rdb, held: held}
				l := b.limiter(b.clientOf(way))
				for range 3 {
					check(b, l.Acquire(b.Context(), 1))
				}
				if n := way.calls.Load(); int(n) <= len(held) {
					b.Fatalf("%d calls, of which %d are held up", n, len(held))
				}
				if far := b.rdb.HGet(b.Context(), b.name(), "far").Val(); far != "" && far != "0" {
					b.Errorf("Redis counts as far: it lets grants stand for %s us", far)
				}
			})
		})
	}
}

// heldUp is a Redis that is near, but its first calls are held up on their way there.
type heldUp struct {
	redis.Scripter
	held  []time.Duration
	calls atomic.Int64
}

func (w *heldUp) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if n := int(w.calls.Add(1)); n <= len(w.held) {
		time.Sleep(w.held[n-1])
	}
	time.Sleep(200 * time.Microsecond)
	return w.Scripter.EvalSha(ctx, sha, keys, args...)
}

// Callers that come once, and have their reservations from the first call, get them in time.
func TestFirstReservationsFromAfar(t *testing.T) {
	for rate, callers := range map[string]int{"1/1s": 2, "50/1s": 100, "1000/1s": 1500} {
		t.Run(rate, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				b.loadScripts()
				check(b, b.limiter(b.client()).SetRate(b.Context(), guarded(rate)))
				l := b.limiter(b.clientOf(&distant{Scripter: b.rdb, roundTrip: ms(250), varies: ms(4), connects: 3}))
				came := &arrivals{b: b}
				for range callers {
					came.wait(b.Context(), l, 1)
				}
				came.wg.Wait()
				var starts []time.Duration
				for _, w := range came.waits {
					check(b, w.err)
					starts = append(starts, w.at)
				}
				slices.Sort(starts)
				if took := starts[callers-1] - starts[0]; took < time.Second || took > ms(1150) {
					b.Errorf("the last has its permit %v after the first, want 1.01s, and a round trip at most", took)
				}
			})
		})
	}
}
