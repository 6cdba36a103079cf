package throttle

import (
	"context"
	"testing"
	"time"
)

// TestManyMoveUp: who has been told that permits come in time gets them in time, however many wait with deadlines of their
// own, and whoever else waits, if permits are released and they move up. And whoever comes meanwhile gets an answer.
func TestManyMoveUp(t *testing.T) {
	tests := map[string]struct {
		client func(b *bench) *Client
		guard  time.Duration
	}{
		"hears of releases": {func(b *bench) *Client { return b.client() }, ms(50)},
		"its own, far away": {func(b *bench) *Client { return b.clientOf(b.away(ms(50), 0)) }, ms(200)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				b.loadScripts()
				r := Rate{Permits: 300, Interval: time.Second, Guard: tt.guard}
				l, other := b.limiter(tt.client(b)), b.limiter(b.client())
				check(b, l.SetRate(b.Context(), r))
				check(b, l.Acquire(b.Context(), r.Permits))
				mine, others := &arrivals{b: b}, &arrivals{b: b}
				for i := range 290 {
					ctx, cancel := context.WithTimeout(b.Context(), r.Interval+r.Guard+ms(50+i))
					defer cancel()
					mine.wait(ctx, l, 1)
				}
				time.Sleep(r.Guard + ms(200)) // mine have their reservations
				for range 600 {
					others.wait(b.Context(), other, 1)
				}
				for i := range 20 {
					mine.wg.Go(func() {
						time.Sleep(time.Duration(i) * ms(30))
						check(b, l.Release(b.Context(), 1))
						began := time.Now()
						_, err := l.TryAcquire(b.Context(), 1)
						check(b, err)
						if took := time.Since(began); took > ms(300) {
							b.Errorf("TryAcquire took %v", took)
						}
					})
				}
				mine.wg.Wait()
				for i, w := range mine.waits {
					if w.err != nil {
						b.Errorf("caller %d at %v: %v", i, w.at, w.err)
					}
				}
				others.wg.Wait()
				if took, ideal := time.Since(b.begin), 3*(r.Interval+r.Guard); took > ideal+ms(200) {
					b.Errorf("%v, want about %v", took, ideal)
				}
			})
		})
	}
}

// TestReleasesOneAfterTheOther: permits that go back shortly after others reach who waits in another process as soon as the others
// did, which is within 100 ms and two round trips.
func TestReleasesOneAfterTheOther(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("3/1h"))
		b.expectTry(l, 3, true)
		a := &arrivals{b: b}
		waiting := b.limiter(b.client())
		for range 3 {
			a.wait(b.Context(), waiting, 1)
		}
		for i := range 3 {
			b.until(time.Second + time.Duration(i)*ms(30))
			check(b, l.Release(b.Context(), 1))
		}
		a.wg.Wait()
		for i, w := range a.waits {
			if last := time.Second + 2*ms(30); w.err != nil || w.at > last+ms(110) {
				b.Errorf("waiter %d was done at %v with %v, want within 100ms of %v", i, w.at, w.err, last)
			}
		}
	})
}
