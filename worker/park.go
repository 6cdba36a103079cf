package worker

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/park.lua
var parkLua string

//go:embed lua/call.lua
var callLua string

//go:embed lua/due.lua
var dueLua string

//go:embed lua/looked.lua
var lookedLua string

//go:embed lua/front.lua
var frontLua string

//go:embed lua/forget.lua
var forgetLua string

const (
	// maxLines is how many lines a worker looks at in a pass.
	maxLines = 100
	// absence is how long after the last look at one of its lines a queue counts
	// as one that nobody runs. Looks are at most maxLook apart.
	absence = time.Second
	// maxCalled is how many tasks a look calls: the next look goes on.
	maxCalled = 500
	// lookLease is how long a worker may take to look at the lines it has claimed.
	lookLease = 2 * time.Second
	// patience is how long a called task may take to come back: until then it
	// counts as one whose permits are spoken for.
	patience = 5 * time.Second
	// patienceBeside is that while there are workers of the version before this
	// one: they do not say that a task has come back.
	patienceBeside = time.Second
)

// lot is where parked tasks wait: one line for each limiter and queue, in Redis,
// shared by the workers that serve the queue. A line holds names of tasks, not
// tasks: those are in asynq's retry set, which brings them back by itself if a
// line should be lost.
type lot struct {
	rdb                                    redis.UniversalClient
	park, call, due, looked, moved, forgot *redis.Script

	backlog backlog
}

func newLot(rdb redis.UniversalClient) *lot {
	return &lot{
		rdb:    rdb,
		park:   redis.NewScript(parkLua),
		call:   redis.NewScript(callLua),
		due:    redis.NewScript(dueLua),
		looked: redis.NewScript(lookedLua),
		moved:  redis.NewScript(frontLua),
		forgot: redis.NewScript(forgetLua),
	}
}

// entry is a task as the lot knows it.
type entry struct {
	id, queue string
	weight    int // of its queue
	cost      int64
	limiter   string    // whose line called it, if one did
	place     string    // where it stood in that line, and since when
	back      time.Time // when asynq brings it back by itself, once it is put off
}

// name is the member that stands for the task. Colons in the queue's name are
// escaped, so that the first one ends it.
func (e *entry) name() string { return url.QueryEscape(e.queue) + ":" + e.id }

func parseEntry(name string) (queue, id string, err error) {
	escaped, id, ok := strings.Cut(name, ":")
	if queue, err = url.QueryUnescape(escaped); err != nil || !ok {
		return "", "", fmt.Errorf("unreadable task %q in line", name)
	}
	return queue, id, nil
}

// enter says whether the task may ask the limiters for permits: it was called,
// or no task of its queue is in line for any of them. Otherwise it is in line
// itself, for the limiter that is returned, behind ahead others. It makes no call
// to Redis if none of the limiters has a line.
func (l *lot) enter(ctx context.Context, e *entry, limiters []string) (limiter string, ahead int64, err error) {
	if e.limiter != "" {
		return "", 0, nil // it has arrived
	}
	lined := l.backlog.lined(e.queue, limiters)
	if len(lined) > 1 { // any of them may have called it, or have it in line
		if limiter, ahead, err = l.arrive(ctx, e, lined); err != nil || limiter != "" || e.limiter != "" {
			return limiter, ahead, err
		}
	}
	for _, name := range lined {
		goOn, ahead, err := l.run(ctx, e, name, "join")
		if err != nil || e.limiter != "" {
			return "", 0, err
		}
		if !goOn {
			return name, ahead, nil
		}
	}
	return "", 0, nil
}

// arrive says that a task that one of the limiters has called is back: from then
// on no permits are spoken for it. If none has called it, but asynq has brought
// it back by itself, it may be in line for the limiter that is returned. It makes
// no call to Redis if none of the limiters has a line.
func (l *lot) arrive(ctx context.Context, e *entry, limiters []string) (limiter string, ahead int64, err error) {
	for _, name := range l.backlog.lined(e.queue, limiters) {
		_, n, err := l.run(ctx, e, name, "arrive")
		if err != nil || e.limiter != "" {
			return "", 0, err
		}
		if limiter == "" && n > 0 {
			limiter, ahead = name, n
		}
	}
	return limiter, ahead, nil
}

// add puts the task in line for the limiter: at the place it was called from, if
// that was in the same line, else behind the others of its queue.
func (l *lot) add(ctx context.Context, e *entry, limiter string) error {
	return l.put(ctx, e, limiter, "park")
}

// setAside keeps the place of a task that has arrived and cannot go on yet. It
// counts as called, but no permits are spoken for it.
func (l *lot) setAside(ctx context.Context, e *entry) error {
	return l.put(ctx, e, e.limiter, "aside")
}

func (l *lot) put(ctx context.Context, e *entry, limiter, purpose string) error {
	if _, _, err := l.run(ctx, e, limiter, purpose); err != nil {
		return err
	}
	l.backlog.add(e.queue, limiter)
	// Last, so that a look which found the line empty sees the score changed.
	return l.rdb.ZIncrBy(ctx, indexOf(e.queue), 0.001, limiter).Err()
}

func (l *lot) run(ctx context.Context, e *entry, limiter, purpose string) (goOn bool, ahead int64, err error) {
	place := ""
	if e.limiter == limiter {
		place = e.place
	}
	back := int64(0)
	if !e.back.IsZero() {
		back = e.back.Unix()
	}
	k := keysOf(limiter)
	keys := []string{k.line(e.queue), k.called, k.clock, k.costs, k.kept, k.old.clock}
	if l.backlog.isOld(limiter) {
		keys = append(keys, k.old.called, k.old.costs, k.old.since)
	}
	reply, err := l.park.Run(ctx, l.rdb, keys, e.name(), e.queue, e.cost, e.weight, purpose, place, back).Slice()
	if err != nil {
		return false, 0, err
	}
	if len(reply) != 2 {
		return false, 0, fmt.Errorf("park.lua: %d values where 2 were expected", len(reply))
	}
	switch v := reply[1].(type) {
	case int64:
		return false, v, nil
	case string:
		if v != "" {
			e.limiter, e.place = limiter, v
		}
		return true, 0, nil
	}
	return false, 0, fmt.Errorf("park.lua: unexpected %T", reply[1])
}

// claim is the right to look at the lines of a limiter.
type claim struct {
	limiter        string
	queues, scores []string // of the lines, and what the indexes say of them; "" of those that come along
}

// claims returns lines of these queues that are due for a look, which no other
// worker gets for a while. Lines of other queues for the same limiters come along.
func (l *lot) claims(ctx context.Context, queues []string) ([]*claim, error) {
	indexes := make([]string, len(queues))
	for i, queue := range queues {
		indexes[i] = indexOf(queue)
	}
	reply, err := l.due.Run(ctx, l.rdb, indexes, lookLease.Milliseconds(), maxLines).StringSlice()
	if err != nil {
		return nil, err
	}
	var claims []*claim
	of := map[string]*claim{}
	for i := 0; i+2 < len(reply); i += 3 {
		index, err := strconv.Atoi(reply[i])
		if err != nil || index < 1 || index > len(queues) {
			return nil, fmt.Errorf("due.lua: index %q of %d", reply[i], len(queues))
		}
		c := of[reply[i+1]]
		if c == nil {
			c = &claim{limiter: reply[i+1]}
			of[c.limiter] = c
			claims = append(claims, c)
		}
		c.queues, c.scores = append(c.queues, queues[index-1]), append(c.scores, reply[i+2])
	}
	for _, c := range claims {
		for _, queue := range queues {
			if !slices.Contains(c.queues, queue) && l.backlog.has(queue, c.limiter) {
				c.queues, c.scores = append(c.queues, queue), append(c.scores, "")
			}
		}
	}
	return claims, nil
}

// call is a task that a look has called.
type call struct {
	name string
	back int64 // when asynq brings it back by itself, in seconds after 1970; 0 if that is unknown
}

// next calls tasks from the limiter's lines of these queues, whose permits, with
// those that are due to other queues, reach budget. Left are, by queue, those
// still in line or on their way.
func (l *lot) next(ctx context.Context, limiter string, queues []string, budget int64) (calls []call, left []int64, err error) {
	k := keysOf(limiter)
	waits := patience
	if l.backlog.isOld(limiter) {
		waits = patienceBeside
	}
	args := []any{budget, maxCalled, waits.Milliseconds(), absence.Milliseconds()}
	for _, queue := range queues {
		args = append(args, url.QueryEscape(queue))
	}
	reply, err := l.call.Run(ctx, l.rdb, []string{k.called, k.clock, k.costs, k.kept, k.lines}, args...).StringSlice()
	if err != nil {
		return nil, nil, err
	}
	if len(reply) < len(queues) {
		return nil, nil, fmt.Errorf("call.lua: %d values where at least %d were expected", len(reply), len(queues))
	}
	for _, s := range reply[:len(queues)] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("call.lua: %w", err)
		}
		left = append(left, n)
	}
	for i := len(queues); i+1 < len(reply); i += 2 {
		_, back := parseKept(reply[i+1])
		calls = append(calls, call{reply[i], back})
	}
	return calls, left, nil
}

// parseKept reads what park.lua keeps of a task: since when it is parked, zero if
// that is unknown, and when asynq brings it back by itself.
func parseKept(s string) (since time.Time, back int64) {
	ms, seconds, _ := strings.Cut(s, " ")
	if n, err := strconv.ParseInt(ms, 10, 64); err == nil && n > 0 {
		since = time.UnixMilli(n)
	}
	back, _ = strconv.ParseInt(seconds, 10, 64)
	return since, back
}

// done gives a claim back: the lines are due again after their delays, or empty where those are negative.
func (l *lot) done(ctx context.Context, c *claim, delays []time.Duration) error {
	args := []any{c.limiter}
	indexes := make([]string, len(c.queues))
	for i, queue := range c.queues {
		ms := delays[i].Milliseconds()
		if delays[i] < 0 {
			ms = -1
		}
		indexes[i] = indexOf(queue)
		args = append(args, ms, c.scores[i])
	}
	return l.looked.Run(ctx, l.rdb, indexes, args...).Err()
}

// front moves pending tasks of a queue to its front, in their order.
func (l *lot) front(ctx context.Context, queue string, ids []any) error {
	err := l.moved.Run(ctx, l.rdb, []string{"asynq:{" + queue + "}:pending"}, ids...).Err()
	if errors.Is(err, redis.Nil) {
		return nil // it has nothing to say
	}
	return err
}

// forget drops a called task that will not come back.
func (l *lot) forget(ctx context.Context, limiter, name string) error {
	k := keysOf(limiter)
	return l.forgot.Run(ctx, l.rdb, []string{k.called, k.costs, k.kept}, name).Err()
}
