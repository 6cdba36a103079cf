package throttle

import (
	"testing"
	"time"
)

// A client that has a limiter with a rate creates it, whoever came before without a rate.
func TestLimiterWithRateComesSecond(t *testing.T) {
	t.Run("alone", func(t *testing.T) {
		underFakeTime(t, func(b *bench) {
			c := b.client()
			plain := must(c.Limiter("x"))
			_, err := plain.TryAcquire(b.Context(), 1)
			b.expectError(err, ErrNotInitialized, "x")
			b.expectTry(must(c.LimiterWithRate("x", rate("10/1s"))), 1, true)
			b.expectTry(plain, 1, true)
		})
	})
	t.Run("in a group", func(t *testing.T) {
		underFakeTime(t, func(b *bench) {
			c := b.client()
			y := must(c.LimiterWithRate("y", rate("10/1s")))
			_, err := must(c.Group(must(c.Limiter("x")), y)).TryAcquire(b.Context(), 1)
			b.expectError(err, ErrNotInitialized, "x")
			g := must(c.Group(must(c.LimiterWithRate("x", rate("10/1s"))), y))
			if ok, err := g.TryAcquire(b.Context(), 1); !ok || err != nil {
				b.Errorf("%v, %v", ok, err)
			}
		})
	})
	t.Run("kept alive", func(t *testing.T) { // it exists at first, and not later
		underFakeTime(t, func(b *bench) {
			r := kept(rate("10/1s"), 10*time.Second)
			check(b, must(b.client().Limiter("x")).SetRate(b.Context(), r))
			c := b.client()
			b.expectTry(must(c.Limiter("x")), 1, true)
			with := must(c.LimiterWithRate("x", r))
			b.expectTry(with, 1, true)
			time.Sleep(time.Minute)
			b.expectTry(with, 1, true)
		})
	})
}

// Of several rates for one name, the latest is the one with which the limiter is created, and not
// that of the client that asked first.
func TestLatestRateIsCreated(t *testing.T) {
	for name, ask := range map[string]func(b *bench, c *Client, x *Limiter) error{
		"alone": func(b *bench, _ *Client, x *Limiter) error { return x.Acquire(b.Context(), 1) },
		"in a group": func(b *bench, c *Client, x *Limiter) error {
			return must(c.Group(x, must(c.LimiterWithRate("y", rate("10/1s"))))).Acquire(b.Context(), 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				c := b.client()
				old := must(c.LimiterWithRate("x", kept(rate("10/1s"), 10*time.Second)))
				check(b, ask(b, c, old))
				time.Sleep(time.Minute)
				latest := must(c.LimiterWithRate("x", kept(rate("5/1s"), 10*time.Second)))
				check(b, ask(b, c, latest))
				expect := func(when string) {
					b.Helper()
					if r := must(old.Config(b.Context())); r.Permits != 5 {
						b.Errorf("%s: created with %v, want 5/1s", when, r)
					}
				}
				expect("the latest asks")
				time.Sleep(time.Minute)
				check(b, ask(b, c, old))
				expect("the first asks again")
				time.Sleep(time.Minute)
				check(b, old.Acquire(b.Context(), 1)) // in one of the two queues
				expect("the first asks, maybe in another queue")
			})
		})
	}
}
