package simulate

import (
	"context"
	"net"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// process is the connection of one Client to a Redis, until the process dies.
type process struct {
	redis.Scripter // methods that are not overridden are not used
	redis          *Redis
	news           *redis.Client
	death          chan struct{}
}

// newsFrom connects processes to a server that only passes on what is published. Processes that
// are told of changes ask less often.
func newsFrom(m *miniredis.Miniredis) *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr:                     "127.0.0.1:0", // never dialled or resolved
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return m.Dial() },
		ReadBufferSize:           512,
		WriteBufferSize:          512,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
}

func (p *process) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return p.news.Subscribe(ctx, channels...)
}

// noScript is the error for a hash that the server does not know.
type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT No matching script. Please use EVAL." }
func (noScript) RedisError()   {}

func (p *process) EvalSha(ctx context.Context, hash string, keys []string, args ...any) *redis.Cmd {
	s, ok := p.redis.known(hash)
	if !ok {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(noScript{})
		return cmd
	}
	return p.run(ctx, s, keys, args)
}

func (p *process) Eval(ctx context.Context, source string, keys []string, args ...any) *redis.Cmd {
	return p.run(ctx, p.redis.learn(source), keys, args)
}

// run makes a call. Calls of a dead process reach nobody.
func (p *process) run(ctx context.Context, s script, keys []string, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	if p.dead() {
		<-ctx.Done()
		cmd.SetErr(ctx.Err())
		return cmd
	}
	value, err := p.redis.run(s, keys, args)
	cmd.SetVal(value)
	cmd.SetErr(err)
	return cmd
}

func (p *process) dead() bool {
	select {
	case <-p.death:
		return true
	default:
		return false
	}
}
