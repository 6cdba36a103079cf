package throttle

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// change runs a script that changes the limiter. It is done once, however often
// go-redis or the network repeats it: Redis keeps its reply for longer than it
// may be done, and tells the time to whoever comes too late, or without knowing
// it. What came too late may have been done before.
func (l *Limiter) change(ctx context.Context, s *redis.Script, args ...any) (any, error) {
	keys := append(l.keys[:], l.c.replyKey(l))
	latest := l.knownTime()
	if latest > 0 {
		latest += servedFor.Microseconds()
	}
	for {
		began := time.Now()
		reply, err := l.c.eval(ctx, s, keys, append([]any{latest}, args...)...)
		now, _ := reply.(int64)
		if now <= 1 { // done, or not, but not for its time
			return reply, err
		}
		if latest > 0 && time.Since(began) >= leastServed/2 { // else Redis's clock was set, and it was not done
			return nil, unknownWhether()
		}
		latest = now + servedFor.Microseconds()
	}
}

// knownTime is what Redis's clock shows at the least, in us, as far as the
// limiter's queue knows; zero if it does not.
func (l *Limiter) knownTime() int64 {
	q := l.last.Load()
	if q == nil {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.clock.least(time.Now())
}

// unknownWhether is the error of what Redis has not answered for so long that it
// no longer knows of it.
func unknownWhether() error {
	return fmt.Errorf("%w, waiting for Redis: it is not known whether it was done", context.DeadlineExceeded)
}
