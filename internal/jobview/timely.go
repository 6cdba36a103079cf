package jobview

import (
	"context"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// asynqWithin is asynq's Inspector for one caller, whose calls to Redis end with ctx, if the client heeds deadlines
// (ContextTimeoutEnabled in its options). asynq itself has them wait for as long as the client does, which may be minutes if
// Redis says nothing.
func (i *Inspector) asynqWithin(ctx context.Context) *asynq.Inspector {
	return asynq.NewInspectorFromRedisClient(timely{i.rdb, ctx})
}

// timely is a Redis client for asynq's Inspector. It has the calls that the Inspector makes for this package end with ctx.
type timely struct {
	redis.UniversalClient
	ctx context.Context // that of the one caller that it is made for
}

func (t timely) SMembers(_ context.Context, key string) *redis.StringSliceCmd {
	return t.UniversalClient.SMembers(t.ctx, key)
}

func (t timely) SIsMember(_ context.Context, key string, member any) *redis.BoolCmd {
	return t.UniversalClient.SIsMember(t.ctx, key, member)
}

func (t timely) Get(_ context.Context, key string) *redis.StringCmd {
	return t.UniversalClient.Get(t.ctx, key)
}

func (t timely) HVals(_ context.Context, key string) *redis.StringSliceCmd {
	return t.UniversalClient.HVals(t.ctx, key)
}

func (t timely) SetNX(_ context.Context, key string, value any, expiration time.Duration) *redis.BoolCmd {
	return t.UniversalClient.SetNX(t.ctx, key, value, expiration)
}

func (t timely) Del(_ context.Context, keys ...string) *redis.IntCmd {
	return t.UniversalClient.Del(t.ctx, keys...)
}

func (t timely) Eval(_ context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return t.UniversalClient.Eval(t.ctx, script, keys, args...)
}

func (t timely) EvalSha(_ context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return t.UniversalClient.EvalSha(t.ctx, sha1, keys, args...)
}
