package replicas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// ReplicasError says that a script ran and that too few replicas acknowledged it in time: a
// failover could forget what it granted. Nothing is handed out because of it. Acquire keeps its
// position and asks again, which charges nothing twice. TryAcquire returns the error, and what it
// took is given back.
type ReplicasError struct {
	Want, Got int           // replicas
	Timeout   time.Duration // how long they had
}

// Error says how many replicas acknowledged, of how many, and how long they had.
func (e *ReplicasError) Error() string {
	return fmt.Sprintf("%d of %d replicas acknowledged within %v", e.Got, e.Want, e.Timeout)
}

// WaitReplicas returns a [redis.Scripter] for throttle.New that accepts no reply of a script
// before so many replicas of its server have what the script wrote. So a master that dies takes
// no grant with it. It sends EVALSHA, SET and WAIT on one connection, in one round trip. If fewer
// replicas acknowledge within the timeout, the error is a [*ReplicasError]. The timeout is at
// least a millisecond, and should be shorter than the ReadTimeout of rdb.
//
// It is certain if you wait for all replicas. With fewer it depends on the election: sentinels
// and Redis Cluster prefer the replica that has received most from the master, as far as they
// know. But if you wait for all of them, nothing is granted while one is away.
//
// If rdb is a [*redis.ClusterClient], set throttle.Options.Cluster: New cannot see it.
func WaitReplicas(rdb redis.UniversalClient, replicas int, timeout time.Duration) redis.Scripter {
	return &waitingScripter{Scripter: rdb, rdb: rdb, replicas: replicas, timeout: timeout}
}

// waitingScripter is what WaitReplicas returns. Scripts are loaded without waiting: that grants
// nothing.
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

// Subscribe makes it possible for a Client to hear of changes.
func (s *waitingScripter) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return s.rdb.Subscribe(ctx, channels...)
}

// send runs a script and waits for replicas. The script may be a repeat that writes nothing, because the reply to its
// first run was lost with another connection. In Valkey 9, WAIT counts only what its own connection wrote. So send writes
// a key between the script and WAIT: a replica that has this write has everything that the server wrote before it.
func (s *waitingScripter) send(ctx context.Context, keys []string, run func(redis.Pipeliner) *redis.Cmd) *redis.Cmd {
	node, moved, err := s.node(ctx, keys)
	if err != nil {
		return failedCmd(ctx, err)
	}
	var reply, waited *redis.Cmd
	wrote := redis.NewStatusResult("", nil)
	_, _ = node.Pipelined(ctx, func(p redis.Pipeliner) error { // each reply has its own error
		reply = run(p)
		if len(keys) > 0 {
			wrote = p.Set(ctx, script.Prefix(keys[0])+":jobthrottle:waited", "", time.Second)
		}
		waited = p.Do(ctx, "wait", s.replicas, max(s.timeout.Milliseconds(), 1)) // 0 is for ever
		return nil
	})
	if err := reply.Err(); err != nil {
		if !redis.HasErrorPrefix(err, "NOSCRIPT") {
			moved()
		}
		return reply
	}
	got, err := waited.Int()
	if err = cmp.Or(wrote.Err(), err); err != nil {
		moved()
		return failedCmd(ctx, err)
	}
	if got < s.replicas {
		return failedCmd(ctx, &ReplicasError{Want: s.replicas, Got: got, Timeout: s.timeout})
	}
	return reply
}

// cluster is what a *redis.ClusterClient has, and what embeds one.
type cluster interface {
	MasterForKey(ctx context.Context, key string) (*redis.Client, error)
	ReloadState(ctx context.Context)
}

// node returns the server that has the keys, and a function to call when it seems not to have
// them any more. WAIT has no key that would lead a ClusterClient there.
func (s *waitingScripter) node(ctx context.Context, keys []string) (node redis.UniversalClient, moved func(), err error) {
	if _, ok := s.rdb.(*redis.Ring); ok {
		return nil, nil, errors.New("a redis.Ring does not say which server has a key: want a Client or a ClusterClient")
	}
	cluster, ok := s.rdb.(cluster)
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
