package replicas

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// ReplicasError says that a script ran and that too few replicas acknowledged
// it in time: what it granted could be forgotten by a failover. Nothing is
// handed out on it. Acquire keeps its place and asks again, which charges
// nothing twice; TryAcquire returns it, and what it took is given back.
type ReplicasError struct {
	Want, Got int           // replicas
	Timeout   time.Duration // how long they had
}

func (e *ReplicasError) Error() string {
	return fmt.Sprintf("%d of %d replicas acknowledged within %v", e.Got, e.Want, e.Timeout)
}

// WaitReplicas returns a Scripter for throttle.New that takes no reply of a script
// before so many replicas of its server have what the script wrote, so that a
// master that dies takes no grant with it: EVALSHA and WAIT, on one connection and
// in one round trip. If fewer acknowledge within the timeout, the error is a
// *ReplicasError. The timeout is at least a millisecond, and should be shorter than
// the ReadTimeout of rdb.
//
// It is certain where all replicas are waited for. With fewer it rests on the
// election: sentinels and Redis Cluster prefer the replica that has heard most
// of the master, as far as they know. With all of them, nothing is granted
// while one is away.
//
// Where rdb is a *redis.ClusterClient, set throttle.Options.Cluster: New cannot see it.
func WaitReplicas(rdb redis.UniversalClient, replicas int, timeout time.Duration) redis.Scripter {
	return &waitingScripter{Scripter: rdb, rdb: rdb, replicas: replicas, timeout: timeout}
}

// waitingScripter is what WaitReplicas returns. Scripts are loaded as before:
// that grants nothing.
type waitingScripter struct {
	redis.Scripter
	rdb      redis.UniversalClient
	replicas int
	timeout  time.Duration
}

func (s *waitingScripter) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return s.send(ctx, keys, func(p redis.Pipeliner) *redis.Cmd { return p.Eval(ctx, script, keys, args...) })
}

func (s *waitingScripter) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	return s.send(ctx, keys, func(p redis.Pipeliner) *redis.Cmd { return p.EvalSha(ctx, sha, keys, args...) })
}

// Subscribe lets a Client hear of changes.
func (s *waitingScripter) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return s.rdb.Subscribe(ctx, channels...)
}

// send runs a script and waits. WAIT counts the replicas that have all that
// the server wrote before it, whichever connection that came from: so it also
// holds for a repeated script, which only reads what the first run wrote.
func (s *waitingScripter) send(ctx context.Context, keys []string, script func(redis.Pipeliner) *redis.Cmd) *redis.Cmd {
	node, moved, err := s.node(ctx, keys)
	if err != nil {
		return failedCmd(ctx, err)
	}
	var reply, waited *redis.Cmd
	_, _ = node.Pipelined(ctx, func(p redis.Pipeliner) error { // each reply has its own error
		reply = script(p)
		waited = p.Do(ctx, "wait", s.replicas, s.timeout.Milliseconds())
		return nil
	})
	if err := reply.Err(); err != nil {
		if !redis.HasErrorPrefix(err, "NOSCRIPT") {
			moved()
		}
		return reply
	}
	got, err := waited.Int()
	if err != nil {
		moved()
		return failedCmd(ctx, err)
	}
	if got < s.replicas {
		return failedCmd(ctx, &ReplicasError{Want: s.replicas, Got: got, Timeout: s.timeout})
	}
	return reply
}

// node is the server that has the keys, and what to do when it seems to have
// them no more. WAIT has no key that would lead a ClusterClient there.
func (s *waitingScripter) node(ctx context.Context, keys []string) (node redis.UniversalClient, moved func(), err error) {
	cluster, ok := s.rdb.(*redis.ClusterClient)
	if !ok {
		return s.rdb, func() {}, nil
	}
	if len(keys) == 0 {
		return nil, nil, errors.New("a script without keys has no node in a Redis Cluster")
	}
	master, err := cluster.MasterForKey(ctx, keys[0])
	return master, func() { cluster.ReloadState(ctx) }, err
}

func failedCmd(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}
