package throttle

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A change that is repeated, however late, does not undo what others did since.
func TestChangesAreRepeatedLate(t *testing.T) {
	type change func(ctx context.Context, l *Limiter) error
	set := func(ctx context.Context, l *Limiter) error { return l.SetRate(ctx, rate("10/1h")) }
	remove := func(ctx context.Context, l *Limiter) error { return second(l.Delete(ctx)) }
	cases := map[string]struct{ once, since change }{
		"Delete":                      {remove, set},
		"SetRate":                     {func(ctx context.Context, l *Limiter) error { return l.SetRate(ctx, rate("7/1h")) }, set},
		"SetRate of what was deleted": {set, remove},
		"TrySetRate":                  {func(ctx context.Context, l *Limiter) error { return second(l.TrySetRate(ctx, rate("7/1h"))) }, remove},
		"UpdateRate":                  {func(ctx context.Context, l *Limiter) error { return second(l.UpdateRate(ctx, rate("7/1h"))) }, set},
		"ApplyRate":                   {func(ctx context.Context, l *Limiter) error { return second(l.ApplyRate(ctx, rate("7/1h"))) }, remove},
		"Pause":                       {func(ctx context.Context, l *Limiter) error { return l.Pause(ctx, time.Hour) }, func(ctx context.Context, l *Limiter) error { return l.Resume(ctx) }},
		"Resume":                      {func(ctx context.Context, l *Limiter) error { return l.Resume(ctx) }, func(ctx context.Context, l *Limiter) error { return l.Pause(ctx, time.Hour) }},
		"Pin":                         {func(ctx context.Context, l *Limiter) error { return l.Pin(ctx) }, func(ctx context.Context, l *Limiter) error { return l.Unpin(ctx) }},
		"Unpin":                       {func(ctx context.Context, l *Limiter) error { return l.Unpin(ctx) }, func(ctx context.Context, l *Limiter) error { return l.Pin(ctx) }},
		"Expire":                      {func(ctx context.Context, l *Limiter) error { return second(l.Expire(ctx, time.Minute)) }, func(ctx context.Context, l *Limiter) error { return second(l.ClearExpire(ctx)) }},
		"ClearExpire":                 {func(ctx context.Context, l *Limiter) error { return second(l.ClearExpire(ctx)) }, func(ctx context.Context, l *Limiter) error { return second(l.Expire(ctx, time.Hour)) }},
	}
	for name, c := range cases {
		for _, after := range []time.Duration{time.Millisecond, 5 * time.Second, 12 * time.Second, 2 * time.Minute} {
			t.Run(fmt.Sprint(name, " ", after), func(t *testing.T) {
				underFakeTime(t, func(b *bench) {
					l := b.limited(rate("5/1h"))
					late := &repeats{Scripter: b.rdb}
					check(b, c.once(b.Context(), b.limiter(b.clientOf(late))))
					time.Sleep(time.Millisecond)
					for range 10 { // many others change things, too
						check(b, c.since(b.Context(), l))
					}
					before := b.dump()
					time.Sleep(after)
					late.repeat(b.Context())
					if now := b.dump(); !maps.Equal(now, before) {
						t.Errorf("it is now %v, and was %v", now, before)
					}
				})
			})
		}
	}
}

// repeats is a Redis that repeats every script while repeat says so.
type repeats struct {
	redis.Scripter
	again []func(ctx context.Context) *redis.Cmd
}

func (r *repeats) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	r.again = append(r.again, func(ctx context.Context) *redis.Cmd { return r.Scripter.EvalSha(ctx, sha, keys, args...) })
	return r.Scripter.EvalSha(ctx, sha, keys, args...)
}

func (r *repeats) repeat(ctx context.Context) {
	for _, again := range r.again {
		again(ctx)
	}
}

// dump is what Redis has of the test's limiter, except replies.
func (b *bench) dump() map[string]string {
	b.Helper()
	all := map[string]string{}
	for _, key := range b.keys() {
		expires := b.rdb.PTTL(b.Context(), key).Val() > 0
		if fields, err := b.rdb.HGetAll(b.Context(), key).Result(); err == nil {
			all[key] = fmt.Sprint(fields, expires)
		} else {
			all[key] = fmt.Sprint(b.rdb.Type(b.Context(), key).Val(), expires)
		}
	}
	return all
}
