package worker

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
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

// indexKey lists the limiters that have tasks in line, of all workers.
const indexKey = "jobthrottle:parked"

const (
	// maxBacklog is how many limiters with a line a worker remembers. A fresh
	// task of one that it does not remember may overtake those in line.
	maxBacklog = 1000
	// maxLines is how many lines a worker looks at in a pass.
	maxLines = 100
	// maxCalled is how many tasks a look calls: the next look goes on.
	maxCalled = 500
	// lookLease is how long a worker may take to look at the lines it has claimed.
	lookLease = 2 * time.Second
	// patience is how long a called task may take to come back: until then it
	// counts as one whose permits are spoken for.
	patience = 5 * time.Second
)

// lot is where parked tasks wait: one line per limiter, in Redis, shared by all
// workers. A line holds names of tasks, not tasks: those are in asynq's retry
// set, which brings them back by itself if a line should be lost.
type lot struct {
	rdb                            redis.UniversalClient
	park, call, due, looked, moved *redis.Script

	mu      sync.Mutex
	backlog map[string]bool // limiters that have, as far as this worker knows, a line
}

func newLot(rdb redis.UniversalClient) *lot {
	return &lot{
		rdb:     rdb,
		park:    redis.NewScript(parkLua),
		call:    redis.NewScript(callLua),
		due:     redis.NewScript(dueLua),
		looked:  redis.NewScript(lookedLua),
		moved:   redis.NewScript(frontLua),
		backlog: map[string]bool{},
	}
}

// entry is a task as the lot knows it.
type entry struct {
	id, queue string
	weight    int // of its queue
	cost      int64
	limiter   string // whose line called it, if one did
	place     string // where it stood in that line, and since when
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

// lineKeys are the keys of a limiter's line, in the limiter's slot.
func lineKeys(limiter string) []string {
	prefix := limiter
	if !strings.Contains(limiter, "{") {
		prefix = "{" + limiter + "}"
	}
	line := prefix + ":parked"
	return []string{line, line + ":called", line + ":clock", line + ":costs", line + ":since"}
}

// enter says whether the task may ask the limiters for permits: it was called,
// or no task of its queue is in line for any of them. Otherwise it is in line
// itself, for the limiter that is returned, behind ahead others. It makes no call
// to Redis if none of the limiters has a line.
func (l *lot) enter(ctx context.Context, e *entry, limiters []string) (limiter string, ahead int64, err error) {
	lined := l.lined(limiters)
	if len(lined) > 1 { // any of them may have called it
		for _, name := range lined {
			if _, _, err := l.run(ctx, e, name, "arrive"); err != nil || e.limiter != "" {
				return "", 0, err
			}
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

// add puts the task in line for the limiter: at the place it was called from, if
// that was in the same line, else behind the others of its queue.
func (l *lot) add(ctx context.Context, e *entry, limiter string) error {
	if _, _, err := l.run(ctx, e, limiter, "park"); err != nil {
		return err
	}
	l.mu.Lock()
	if len(l.backlog) < maxBacklog {
		l.backlog[limiter] = true
	}
	l.mu.Unlock()
	// Last, so that a look which found the line empty sees the score changed.
	return l.rdb.ZIncrBy(ctx, indexKey, 0.001, limiter).Err()
}

func (l *lot) run(ctx context.Context, e *entry, limiter, purpose string) (goOn bool, ahead int64, err error) {
	place := ""
	if e.limiter == limiter {
		place = e.place
	}
	reply, err := l.park.Run(ctx, l.rdb, lineKeys(limiter), e.name(), e.queue, e.cost, e.weight, purpose, place).Slice()
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

func (l *lot) lined(limiters []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lined []string
	for _, name := range limiters {
		if l.backlog[name] {
			lined = append(lined, name)
		}
	}
	return lined
}

// refresh learns which limiters have a line from what all workers noted, and
// returns how many do.
func (l *lot) refresh(ctx context.Context) (int, error) {
	names, err := l.rdb.ZRange(ctx, indexKey, 0, maxBacklog-1).Result()
	if err != nil {
		return 0, err
	}
	backlog := make(map[string]bool, len(names))
	for _, name := range names {
		backlog[name] = true
	}
	l.mu.Lock()
	l.backlog = backlog
	l.mu.Unlock()
	return len(names), nil
}

// claim is the right to look at a line.
type claim struct{ limiter, score string }

// claims returns lines that are due for a look, which no other worker gets for a while.
func (l *lot) claims(ctx context.Context) ([]claim, error) {
	reply, err := l.due.Run(ctx, l.rdb, []string{indexKey}, lookLease.Milliseconds(), maxLines).StringSlice()
	if err != nil {
		return nil, err
	}
	claims := make([]claim, 0, len(reply)/2)
	for i := 0; i+1 < len(reply); i += 2 {
		claims = append(claims, claim{reply[i], reply[i+1]})
	}
	return claims, nil
}

// next calls tasks whose permits together reach budget. Left are those still in line or on their way.
func (l *lot) next(ctx context.Context, limiter string, budget int64) (tasks []string, left int64, err error) {
	reply, err := l.call.Run(ctx, l.rdb, lineKeys(limiter), budget, maxCalled, patience.Milliseconds()).StringSlice()
	if err != nil {
		return nil, 0, err
	}
	if len(reply) < 2 {
		return nil, 0, fmt.Errorf("call.lua: %d values where at least 2 were expected", len(reply))
	}
	for _, s := range reply[:2] {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil {
			return nil, 0, fmt.Errorf("call.lua: %w", err)
		}
		left += n
	}
	tasks = reply[2:]
	return tasks, left + int64(len(tasks)), nil
}

// done gives a claim back: the line is due again after delay, or empty if that is negative.
func (l *lot) done(ctx context.Context, c claim, delay time.Duration) error {
	ms := delay.Milliseconds()
	if delay < 0 {
		ms = -1
	}
	return l.looked.Run(ctx, l.rdb, []string{indexKey}, c.limiter, ms, c.score).Err()
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
	keys := lineKeys(limiter)
	_, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.HDel(ctx, keys[1], name)
		p.HDel(ctx, keys[3], name)
		p.HDel(ctx, keys[4], name)
		return nil
	})
	return err
}
