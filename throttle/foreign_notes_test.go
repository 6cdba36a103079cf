package throttle

import (
	"context"
	"testing"
	"time"
)

// What a limiter's hash notes of clocks, and of how far Redis is, may be nonsense: that neither
// stops the limit nor breaks it, and a new rate is taken.
func TestForeignNotes(t *testing.T) {
	for _, field := range []string{"shown", "back", "forward", "far", "reset"} {
		t.Run(field, func(t *testing.T) {
			t.Parallel()
			forEachRedis(t, func(b *bench) {
				ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
				defer cancel()
				for _, value := range []string{"x", "-1", "1e300", "-1e300", "0.5", "nan", "inf", "-inf", "99999999999999999999", "4503599627370497", ""} {
					c, other := b.client(), b.client()
					l := must(c.Limiter(b.name() + ":" + field))
					check(b, l.SetRate(ctx, rate("10/100ms")))
					begin := time.Now() // before the first permit: on a busy machine the next may come when that counts no more
					b.expectTry(l, 1, true)
					check(b, b.rdb.HSet(ctx, l.Name(), field, value).Err())
					fresh := must(other.Limiter(l.Name()))
					got := 1
					for _, from := range []*Limiter{fresh, l} {
						for range 11 {
							if must(from.TryAcquire(ctx, 1)) {
								got++
							}
						}
					}
					if time.Since(begin) < ms(100) && got != 10 {
						b.Errorf("%s %q: %d permits, want the 10 of the rate", field, value, got)
					}
					for _, from := range []*Limiter{fresh, l} {
						waits, stop := context.WithTimeout(ctx, time.Second)
						if err := from.Acquire(waits, 1); err != nil {
							b.Errorf("%s %q: Acquire: %v", field, value, err)
						}
						stop()
					}
					check(b, l.SetRate(ctx, rate("20/100ms")))
					if err := fresh.Acquire(ctx, 1); err != nil {
						b.Errorf("%s %q: after SetRate: %v", field, value, err)
					}
					check(b, c.Close())
					check(b, other.Close())
					must(must(b.client().Limiter(l.Name())).Delete(ctx))
				}
			})
		})
	}
}
