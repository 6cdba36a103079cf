package line

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The version before this one had its lines in the slots of the limiters:
//
//	{jobthrottle:parked}:QUEUE     zset: limiters that have tasks of the queue in line
//	{LIMITER}:parked:line:QUEUE    zset: QUEUE:ID -> position
//	{LIMITER}:parked:kept          hash: QUEUE:ID -> "since back", in milliseconds and in seconds
//	{LIMITER}:parked:cost          hash: QUEUE:ID -> permits
//	{LIMITER}:parked:away          hash: QUEUE:ID -> since when it is called
//	{LIMITER}:parked:places        hash: how queues share the limiter
//
// QUEUE is escaped as in a URL. Workers of that version may still run. They call the tasks in
// those lines, and park others. Tasks that this version has taken over are gone for them. This
// file will be removed in the release after next.

const oldIndex = "{jobthrottle:parked}:"

// adoptBatch is how many tasks of a line are taken over at a time.
const adoptBatch = 500

type oldKeys struct{ line, called, kept, costs, clock string }

func oldKeysOf(limiter, queue string) oldKeys {
	prefix := limiter
	if !strings.Contains(limiter, "{") {
		prefix = "{" + limiter + "}"
	}
	prefix += ":parked:"
	return oldKeys{prefix + "line:" + url.QueryEscape(queue), prefix + "away", prefix + "kept", prefix + "cost", prefix + "places"}
}

// Adopt takes over the tasks of a queue that the version before this one has parked, and returns
// how many they were.
func (l *Lines) Adopt(ctx context.Context, queue string) (adopted int64, err error) {
	index := oldIndex + url.QueryEscape(queue)
	limiters, err := l.rdb.ZRangeWithScores(ctx, index, 0, -1).Result()
	if err != nil {
		return 0, fmt.Errorf("read the lines of the version before this one: %w", err)
	}
	for _, z := range limiters {
		limiter, _ := z.Member.(string)
		n, left, err := l.adoptLine(ctx, queue, limiter)
		if adopted += n; err != nil {
			return adopted, fmt.Errorf("take over line %q of queue %q: %w", limiter, queue, err)
		}
		if left > 0 {
			continue
		}
		// The score has changed if a worker of that version has parked a task since.
		gone, err := l.unlist.Run(ctx, l.rdb, []string{index}, limiter, z.Score).Bool()
		if err == nil && gone {
			err = l.retire.Run(ctx, l.rdb, []string{oldKeysOf(limiter, queue).clock}, url.QueryEscape(queue)).Err()
		}
		if err != nil {
			return adopted, fmt.Errorf("remove line %q of queue %q of the version before this one: %w", limiter, queue, err)
		}
	}
	return adopted, nil
}

// adoptLine takes a line over, except tasks that are on their way: those that a worker is about
// to park, or has called. They are left for the next time.
func (l *Lines) adoptLine(ctx context.Context, queue, limiter string) (adopted, left int64, err error) {
	k := oldKeysOf(limiter, queue)
	names, err := l.rdb.HKeys(ctx, k.called).Result()
	if err != nil {
		return 0, 0, err
	}
	// Some were called by a worker that died before it brought them.
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, url.QueryEscape(queue)+":") })
	if adopted, left, err = l.adopt(ctx, queue, limiter, names); err != nil {
		return adopted, left, err
	}
	for from, more := int64(0), true; more; {
		if names, err = l.rdb.ZRange(ctx, k.line, from, from+adoptBatch-1).Result(); err != nil {
			return adopted, left, err
		}
		n, stay, err := l.adopt(ctx, queue, limiter, names)
		if err != nil {
			return adopted, left, err
		}
		adopted, left, from, more = adopted+n, left+stay, from+stay, len(names) == adoptBatch
	}
	return adopted, left, nil
}

// adopt takes tasks over, and returns how many were left.
func (l *Lines) adopt(ctx context.Context, queue, limiter string, names []string) (adopted, left int64, err error) {
	if len(names) == 0 {
		return 0, 0, nil
	}
	k := oldKeysOf(limiter, queue)
	kept, err := l.rdb.HMGet(ctx, k.kept, names...).Result()
	if err != nil {
		return 0, 0, err
	}
	costs, err := l.rdb.HMGet(ctx, k.costs, names...).Result()
	if err != nil {
		return 0, 0, err
	}
	args := []any{queuePrefix(queue), limiter}
	for i, name := range names {
		_, id, _ := strings.Cut(name, ":")
		since, back, ok := parseKept(text(kept[i]))
		if !ok {
			back = unkept
		}
		cost, err := strconv.ParseInt(text(costs[i]), 10, 64)
		if err != nil {
			cost = 1
		}
		args = append(args, id, since*1000+int64(i), back, cost, fallbackOf(id))
	}
	keys := []string{retryKey(queue), scheduledKey(queue), lineKey(queue, limiter), linesKey(queue, limiter)}
	reply, err := l.adopted.Run(ctx, l.rdb, keys, args...).Int64Slice()
	if err == nil && len(reply) != len(names)+1 {
		err = fmt.Errorf("adopt.lua: %d values where %d were expected", len(reply), len(names)+1)
	}
	if err != nil {
		return 0, 0, err
	}
	var over []string // taken over, or gone
	for i, name := range names {
		if reply[i+1] == 0 {
			over = append(over, name)
		}
	}
	if len(over) == 0 {
		return reply[0], int64(len(names)), nil
	}
	// This comes last: a process that dies before it leaves tasks in both lines, and whoever
	// takes them from either line finds out whether they are still there.
	_, err = l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZRem(ctx, k.line, anys(over)...)
		p.HDel(ctx, k.called, over...)
		p.HDel(ctx, k.kept, over...)
		p.HDel(ctx, k.costs, over...)
		return nil
	})
	return reply[0], int64(len(names) - len(over)), err
}

// unkept stands for a task of which only a name is left, because another worker is taking it over
// at the same time.
const unkept = -1

// parseKept reads since when a task has been parked and when asynq brings it back.
func parseKept(s string) (ms, seconds int64, ok bool) {
	since, back, _ := strings.Cut(s, " ")
	ms, err := strconv.ParseInt(since, 10, 64)
	seconds, berr := strconv.ParseInt(back, 10, 64)
	return max(ms, 1), seconds, errors.Join(err, berr) == nil
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
