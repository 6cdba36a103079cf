package throttle

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestLongLease: a lease may last a day. Its holder keeps the slot, also in the hours in which nobody asks Redis anything.
func TestLongLease(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		s := Slots{Limit: 1, Lease: 24 * time.Hour}
		f, err := b.client().InFlight(b.name(), s)
		check(b, err)
		job := b.hold(f, "job")
		b.until(7 * time.Hour)
		other, err := b.client().InFlight(b.name(), s)
		check(b, err)
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		if l, err := other.Acquire(ctx, "other"); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("after 7 h of 24 another asks for the slot, and gets %v, %v", l, err)
		}
		check(b, job.Context().Err())
		check(b, job.Release(b.Context()))
	})
}

// lastIsSlow is a way to Redis on which one reply comes late. After that, nothing reaches Redis.
type lastIsSlow struct {
	redis.Scripter
	late time.Duration // of the next reply
	slow atomic.Bool   // the next reply comes late
	cut  atomic.Bool
}

func (r *lastIsSlow) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if r.cut.Load() {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(errCut)
		return cmd
	}
	cmd := r.Scripter.EvalSha(ctx, sha, keys, args...)
	if r.slow.CompareAndSwap(true, false) {
		r.cut.Store(true)
		time.Sleep(r.late)
	}
	return cmd
}

// TestSlowReplyIsNoLongerLease: a lease counts from when it was asked for, however late the reply comes. If Redis cannot be
// reached after that, the context of the holder ends before another has the slot.
func TestSlowReplyIsNoLongerLease(t *testing.T) {
	for _, call := range []string{"claim", "renewal"} {
		t.Run(call, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				way := &lastIsSlow{Scripter: b.rdb, late: 2 * time.Second}
				s := Slots{Limit: 1, Lease: 15 * time.Second}
				f, err := b.clientOf(way).InFlight(b.name(), s)
				check(b, err)
				before := b.hold(f, "before")
				b.until(6 * time.Second) // Redis has the scripts
				check(b, before.Release(b.Context()))
				way.slow.Store(call == "claim")
				job := b.hold(f, "job")
				way.slow.Store(call == "renewal")
				g, err := b.client().InFlight(b.name(), s)
				check(b, err)
				next := b.hold(g, "next")
				if job.Context().Err() == nil {
					b.Errorf("another has the slot %v after the beginning, and the context of its holder has not ended", time.Since(b.begin))
				}
				way.cut.Store(false)
				check(b, next.Release(b.Context()))
			})
		})
	}
}
