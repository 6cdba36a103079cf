package worker

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// inspectPage is how many entries of a line, or lines, one round trip reads.
const inspectPage = 500

// Inspector reads which tasks wait for which limit, for the whole fleet: what
// the dashboard and the command throttle show. It changes nothing, and its
// methods may be called concurrently.
type Inspector struct {
	rdb   redis.UniversalClient
	asynq *asynq.Inspector
	fleet *operate.Fleet
}

// NewInspector returns an Inspector of what is in rdb, which remains the
// caller's to close.
func NewInspector(rdb redis.UniversalClient) *Inspector {
	return &Inspector{rdb: rdb, asynq: asynq.NewInspectorFromRedisClient(rdb), fleet: operate.NewFleet(rdb)}
}

// Line is how many tasks are parked for a limiter.
type Line struct {
	Limiter string
	Parked  int64 // in line
	Called  int64 // called back to their queues, as permits come due, and not there yet
}

// Lines returns the limiters that have tasks parked, by name.
func (i *Inspector) Lines(ctx context.Context) ([]Line, error) {
	names, err := i.lined(ctx)
	if err != nil {
		return nil, err
	}
	lines, err := i.LinesOf(ctx, names...)
	return slices.DeleteFunc(lines, func(l Line) bool { return l.Parked+l.Called == 0 }), err
}

// LinesOf returns the lines of limiters, in the order of their names. One that
// has no task parked has an empty line.
func (i *Inspector) LinesOf(ctx context.Context, limiters ...string) ([]Line, error) {
	lines := make([]Line, 0, len(limiters))
	wrap := func(err error) error { return fmt.Errorf("read the lines of parked tasks: %w", err) }
	for page := range slices.Chunk(limiters, inspectPage) {
		queues, err := i.queueLines(ctx, page...)
		if err != nil {
			return nil, wrap(err)
		}
		called, calledBefore := make([]*redis.IntCmd, len(page)), make([]*redis.IntCmd, len(page))
		if _, err := i.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for n, name := range page {
				k := keysOf(name)
				called[n], calledBefore[n] = p.HLen(ctx, k.called), p.HLen(ctx, k.old.called)
			}
			return nil
		}); err != nil {
			return nil, wrap(err)
		}
		for n, name := range page {
			l := Line{Limiter: name, Called: called[n].Val() + calledBefore[n].Val()}
			for _, q := range queues[n] {
				l.Parked += q.tasks
			}
			lines = append(lines, l)
		}
	}
	return lines, nil
}

// lined are the names of the limiters that may have tasks in line.
func (i *Inspector) lined(ctx context.Context) ([]string, error) {
	queues, err := i.asynq.Queues()
	if err != nil {
		return nil, fmt.Errorf("list the queues: %w", err)
	}
	var names []string
	for _, index := range indexesOf(queues) {
		for cursor := uint64(0); ; {
			page, next, err := i.rdb.ZScan(ctx, index, cursor, "", inspectPage).Result()
			if err != nil {
				return nil, fmt.Errorf("read the index of parked tasks: %w", err)
			}
			for n := 0; n < len(page); n += 2 { // each is followed by its score
				names = append(names, page[n])
			}
			if cursor = next; cursor == 0 {
				break
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil // ZSCAN may repeat
}

// ParkedTask is a task in line for a limiter.
type ParkedTask struct {
	Queue   string
	ID      string
	Permits int64     // what it costs
	Since   time.Time // when it first parked for this limiter, by Redis's clock
}

// Parked returns tasks in the lines of a limiter, over all queues, in the order
// in which they will be called: at most n of them, from the given position on,
// which counts from 0. Last are those of queues that nobody runs.
func (i *Inspector) Parked(ctx context.Context, limiter string, from, n int64) ([]ParkedTask, error) {
	if n < 1 || from < 0 {
		return nil, nil
	}
	wrap := func(err error) error { return fmt.Errorf("read the line of limiter %q: %w", limiter, err) }
	found, err := i.queueLines(ctx, limiter)
	if err != nil {
		return nil, wrap(err)
	}
	names, err := i.inOrder(ctx, found[0], from, n)
	if err != nil {
		return nil, wrap(err)
	}
	k := keysOf(limiter)
	tasks := make([]ParkedTask, 0, len(names))
	for page := range slices.Chunk(names, inspectPage) {
		var costs, kept, oldCosts, oldSince *redis.SliceCmd
		_, err := i.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			costs, kept = p.HMGet(ctx, k.costs, page...), p.HMGet(ctx, k.kept, page...)
			oldCosts, oldSince = p.HMGet(ctx, k.old.costs, page...), p.HMGet(ctx, k.old.since, page...)
			return nil
		})
		if err != nil {
			return nil, wrap(err)
		}
		for n, name := range page {
			queue, id, err := parseEntry(name)
			if err != nil {
				continue // it is dropped when its turn comes
			}
			task := ParkedTask{Queue: queue, ID: id, Permits: 1}
			task.Since, _ = parseKept(firstText(kept.Val()[n], oldSince.Val()[n]))
			if cost, err := strconv.ParseInt(firstText(costs.Val()[n], oldCosts.Val()[n]), 10, 64); err == nil {
				task.Permits = cost
			}
			tasks = append(tasks, task)
		}
	}
	return tasks, nil
}

// firstText is the first of a reply's values that is there.
func firstText(values ...any) string {
	for _, v := range values {
		if s, ok := v.(string); ok {
			return s
		}
	}
	return ""
}
