package throttle

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// away makes a Redis in memory use a clock that differs from its clients' by so much: it is set
// before each command.
type away struct {
	b   *bench
	off time.Duration
}

func (a away) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (a away) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		a.b.fake.SetTime(time.Now().Add(a.off))
		return next(ctx, cmd)
	}
}

func (a away) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		a.b.fake.SetTime(time.Now().Add(a.off))
		return next(ctx, cmds)
	}
}

// A client's clock that is wrong, by a second or by decades, gives nobody a second quota and
// makes nobody wait longer: beside an entry of a client whose clock is right, everything is due
// exactly as it would be with a right clock.
func TestD8ClientClocksDoNotMatter(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, off := range []time.Duration{0, time.Second, -time.Second, time.Minute, -time.Minute, time.Hour, -time.Hour, 26 * year, -26 * year} {
		t.Run(off.String(), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				b.rdb.AddHook(away{b, off})
				ctx := b.Context()
				one := b.limited(rate("10/1s"))
				two := b.limiter(b.client())
				now := float64(time.Now().Add(off).UnixMicro()) / 1000
				check(b, b.rdb.ZAdd(ctx, one.keys()[2], redis.Z{Score: now, Member: "\x02ab\x04\x00\x00\x00"}).Err())
				check(b, b.rdb.Del(ctx, one.keys()[1]).Err())
				b.expectTry(one, 7, false)
				b.expectTry(one, 6, true)
				b.expectTry(two, 1, false)
				reservation, err := two.Reserve(ctx, 1, time.Minute)
				check(b, err)
				if d := reservation.Delay(); d != time.Second {
					b.Errorf("told to wait %v, want 1s", d)
				}
				reservation.Cancel()

				var mu sync.Mutex
				got := make(map[time.Duration]int)
				var wg sync.WaitGroup
				for _, l := range []*Limiter{one, two} {
					for range 20 {
						wg.Go(func() {
							if err := l.Acquire(ctx, 1); err != nil {
								b.Error(err)
							}
							mu.Lock()
							defer mu.Unlock()
							got[time.Since(b.begin).Truncate(time.Millisecond)]++
						})
					}
				}
				wg.Wait()
				for s := range 4 {
					if at := time.Duration(s+1) * time.Second; got[at] != 10 {
						b.Errorf("%d permits after %v, want 10: %v", got[at], at, got)
					}
				}
			})
		})
	}
}

// An entry that another's clock has put far ahead delays others for an interval, but not until
// then.
func TestD8ForeignClocksDoNotBlock(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(b.perSecond(10))
		ahead := time.Now().Add(time.Hour).UnixMicro()
		check(b, b.rdb.ZAdd(b.Context(), l.keys()[2], redis.Z{Score: float64(ahead) / 1000, Member: "\x02ab\x0a\x00\x00\x00"}).Err())
		check(b, b.rdb.Del(b.Context(), l.keys()[1]).Err())
		if b.fake != nil {
			b.expectTry(l, 1, false)
		}
		ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
		defer cancel()
		check(b, l.Acquire(ctx, 10))
		if took := time.Since(b.begin); b.fake != nil && took != time.Second {
			b.Errorf("an entry of another clock delayed for %v", took)
		}
	})
}
