package worker

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// inspectPage is how many entries of a line, or lines, one round trip reads.
const inspectPage = 500

// Inspector reads which tasks wait for which limit, for the whole fleet: what
// the dashboard and the command throttle show. It changes nothing, and its
// methods may be called concurrently.
type Inspector struct {
	rdb   redis.UniversalClient
	asynq *asynq.Inspector
	fleet *throttle.Fleet
}

// NewInspector returns an Inspector of what is in rdb, which remains the
// caller's to close.
func NewInspector(rdb redis.UniversalClient) *Inspector {
	return &Inspector{rdb: rdb, asynq: asynq.NewInspectorFromRedisClient(rdb), fleet: throttle.NewFleet(rdb)}
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
	for page := range slices.Chunk(limiters, inspectPage) {
		parked, called := make([]*redis.IntCmd, len(page)), make([]*redis.IntCmd, len(page))
		_, err := i.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for n, name := range page {
				keys := lineKeys(name)
				parked[n], called[n] = p.ZCard(ctx, keys[0]), p.HLen(ctx, keys[1])
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("read the lines of parked tasks: %w", err)
		}
		for n, name := range page {
			lines = append(lines, Line{Limiter: name, Parked: parked[n].Val(), Called: called[n].Val()})
		}
	}
	return lines, nil
}

// lined are the names of the limiters that may have tasks in line.
func (i *Inspector) lined(ctx context.Context) ([]string, error) {
	var names []string
	for cursor := uint64(0); ; {
		page, next, err := i.rdb.ZScan(ctx, indexKey, cursor, "", inspectPage).Result()
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

// Parked returns tasks in the line of a limiter, in the order in which they
// will be called: at most n of them, from the given position on, which counts
// from 0.
func (i *Inspector) Parked(ctx context.Context, limiter string, from, n int64) ([]ParkedTask, error) {
	if n < 1 || from < 0 {
		return nil, nil
	}
	keys := lineKeys(limiter)
	wrap := func(err error) error { return fmt.Errorf("read the line of limiter %q: %w", limiter, err) }
	names, err := i.rdb.ZRange(ctx, keys[0], from, from+n-1).Result()
	if err != nil {
		return nil, wrap(err)
	}
	tasks := make([]ParkedTask, 0, len(names))
	for page := range slices.Chunk(names, inspectPage) {
		var costs, since *redis.SliceCmd
		_, err := i.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			costs, since = p.HMGet(ctx, keys[3], page...), p.HMGet(ctx, keys[4], page...)
			return nil
		})
		if err != nil {
			return nil, wrap(err)
		}
		for n, name := range page {
			queue, id, err := parseEntry(name)
			if err != nil {
				continue // the next look at the line drops it
			}
			task := ParkedTask{Queue: queue, ID: id, Permits: 1, Since: parkedSince(since.Val()[n])}
			if cost, err := strconv.ParseInt(fmt.Sprint(costs.Val()[n]), 10, 64); err == nil {
				task.Permits = cost
			}
			tasks = append(tasks, task)
		}
	}
	return tasks, nil
}

// parkedSince reads a value of the hash "since" of park.lua; zero if there is none.
func parkedSince(v any) time.Time {
	s, _ := v.(string)
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil {
		return time.UnixMilli(ms)
	}
	return time.Time{}
}
