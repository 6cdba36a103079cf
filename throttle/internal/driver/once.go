package driver

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Change runs a script that changes the limiter. The change is made once, however often
// go-redis or the network repeats the call: Redis keeps its reply for longer than the change
// may be made. If a call comes too late, or does not know the time, Redis only answers with
// the time. If it came too late, the change may have been made before.
func (e *Entry) Change(ctx context.Context, s *redis.Script, args ...any) (any, error) {
	m := e.members[0]
	own := script.KeysOf(m.Name, e.c.ID)
	keys := append(own[:], e.c.replyKey(m))
	latest, furthest := e.c.knownTime(m.Name)
	if latest > 0 {
		latest += line.Remote(line.ServedFor.Microseconds())
	}
	for {
		began := time.Now()
		reply, err := e.c.Call(ctx, s, keys, append([]any{int64(latest), int64(furthest)}, args...)...)
		now, _ := reply.(int64)
		if now <= 1 { // done, or refused, but not because of its time
			return reply, err
		}
		// If it was sent only just now, Redis's clock was set, and the change was not made.
		if latest > 0 && time.Since(began) >= line.LeastServed/2 {
			return nil, line.UnknownWhether()
		}
		latest = line.Remote(now + line.ServedFor.Microseconds())
	}
}

// knownTime returns what Redis's clock shows now at least, as far as any line of the limiter
// knows, and what it would show if it had not been set back, as far as is known. Each is zero
// if nothing is known.
func (c *Client) knownTime(name string) (now, furthest line.Remote) {
	if c.clock != nil {
		furthest = c.clock.Least(c.now())
	}
	for _, q := range c.queuesOf(name) {
		q.mu.Lock()
		shows, known := q.line.KnownTime(c.now())
		q.mu.Unlock()
		if shows > 0 && (now == 0 || shows < now) {
			now = shows
		}
		furthest = max(furthest, known)
	}
	return now, furthest
}
