package asynqlimit

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// TestSlowQueueHoldsUpNoOther: the part of Redis for one queue does not answer. Tasks of another
// queue do not start late because of that.
func TestSlowQueueHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		rdb := slowRedis{slow: "asynq:{slow}:jt:room", until: slow}
		rs := newRooms(line.New(rdb), map[string]int{"slow": 1, "fast": 1}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); rs.run(ctx) }()
		began := time.Now()
		rs.of(&attempt{queue: "slow", id: "1"}).leaving(&attempt{queue: "slow", id: "1"})
		synctest.Wait()
		for _, id := range []string{"2", "3"} {
			a := &attempt{queue: "fast", id: id}
			rs.of(a).leave(ctx, a)
		}
		if late := time.Since(began); late > 0 {
			t.Errorf("the starts of the other queue were %v late", late)
		}
		close(slow)
		cancel()
		<-done
	})
}

// slowRedis answers SREM. For one key it answers only when until is closed.
type slowRedis struct {
	redis.UniversalClient
	slow  string
	until chan struct{}
}

func (r slowRedis) SRem(ctx context.Context, key string, _ ...any) *redis.IntCmd {
	if key == r.slow {
		<-r.until
	}
	return redis.NewIntCmd(ctx)
}
