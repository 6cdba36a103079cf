package peer

import (
	"context"

	"github.com/go-redis/redis_rate/v10"

	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
)

// RedisRate is github.com/go-redis/redis_rate. It cannot wait: callers try again after the time
// that it says. Several limits are acquired one after the other.
type RedisRate struct{ Addr string }

// Name is the peer's name in tables.
func (p RedisRate) Name() string { return NameRedisRate }

// Join makes a fleet of redis_rate limiters.
func (p RedisRate) Join(ctx context.Context, w fleet.Work) (Fleet, error) {
	return fleet.Join(w, func(int) (fleet.Member, error) {
		rdb, err := connect(ctx, p.Addr, w, w.Goroutines)
		if err != nil {
			return fleet.Member{}, err
		}
		limiter := redis_rate.NewLimiter(rdb)
		return fleet.Member{
			Acquire: func(ctx context.Context, n int64) error {
				for _, l := range w.Limits {
					if err := acquireRedisRate(ctx, limiter, l, n); err != nil {
						return err
					}
				}
				return nil
			},
			AcquireOf: func(ctx context.Context, limit int, n int64) error {
				return acquireRedisRate(ctx, limiter, w.Limits[limit], n)
			},
			Close: rdb.Close,
		}, nil
	})
}

func acquireRedisRate(ctx context.Context, limiter *redis_rate.Limiter, l fleet.Limit, n int64) error {
	rate := redis_rate.Limit{Rate: int(l.Permits), Burst: int(l.Permits), Period: l.Interval}
	for {
		r, err := limiter.AllowN(ctx, l.Name, rate, int(n))
		if err != nil {
			return err
		}
		if r.Allowed > 0 {
			return nil
		}
		if err := fleet.Sleep(ctx, r.RetryAfter); err != nil {
			return err
		}
	}
}
