package operate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestPinnedAndIdle: the rate of a pinned limiter is kept when nobody asks for longer than it is
// kept alive, however it was used and changed. Its usage is not kept. Unpinned, it expires like
// others.
func TestPinnedAndIdle(t *testing.T) {
	forEachRedis(t, testPinnedAndIdle)
}

func testPinnedAndIdle(s *site) {
	ctx, f, c := s.Context(), s.fleet(), s.client()
	const alive = 200 * time.Millisecond
	rate := throttle.Rate{Permits: 1000, Interval: 100 * time.Millisecond, Guard: 50 * time.Millisecond, KeepAlive: alive}
	for i, typ := range []throttle.RateType{throttle.Overall, throttle.PerClient} {
		rate.Type = typ
		name := fmt.Sprint("account:", i)
		l := s.limited(c, name, rate, 3)
		s.check(f.Pin(ctx, name))
		changed := rate
		changed.Permits = 50
		_, err := l.UpdateRate(ctx, changed)
		s.check(err)
		for range 3 { // also by the short way
			for range 4 {
				s.check(l.Acquire(ctx, 1))
				time.Sleep(alive / 10)
			}
			time.Sleep(4 * alive)
			if u, err := f.Inspect(ctx, name); err != nil || len(u) != 1 || u[0].Rate.Permits != 50 || !u[0].Pinned || u[0].Used != 0 {
				s.Errorf("%s: after a time without use: %+v, %v", typ, u, err)
			}
			if n := s.rdb.Exists(ctx, "{"+name+"}:value", "{"+name+"}:permits").Val(); n != 0 {
				s.Errorf("%s: %d keys of what was used are left", typ, n)
			}
		}
		s.check(l.Acquire(ctx, 1))
		s.check(f.Unpin(ctx, name))
		time.Sleep(time.Second + 4*alive)
		if u, err := f.Inspect(ctx, name); err != nil || len(u) != 0 {
			s.Errorf("%s: unpinned and not used: %+v, %v", typ, u, err)
		}
	}
}
