package line

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The version before this one had its lines in the slots of the limiters:
//
//	{jobthrottle:parked}:QUEUE     zset: limiters that have tasks of the queue in line
//	{LIMITER}:parked:line:QUEUE    zset: QUEUE:ID -> place
//	{LIMITER}:parked:kept          hash: QUEUE:ID -> "since back", in milliseconds and in seconds
//	{LIMITER}:parked:cost          hash: QUEUE:ID -> permits
//	{LIMITER}:parked:away          hash: QUEUE:ID -> since when it is called
//	{LIMITER}:parked:places        hash: how queues share the limiter
//
// with QUEUE escaped as in a URL. Its workers may still be there. They call the
// tasks in those lines, and park others; what this version has taken over they
// find gone. This file goes with the release after next.

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

// Adopt takes the tasks of a queue over that the version before this one has
// parked, and returns how many.
func (l *Lines) Adopt(ctx context.Context, queue string) (adopted int64, err error) {
	index := oldIndex + url.QueryEscape(queue)
	limiters, err := l.rdb.ZRange(ctx, index, 0, -1).Result()
	if err != nil {
		return 0, fmt.Errorf("read the lines of the version before this one: %w", err)
	}
	for _, limiter := range limiters {
		for {
			n, more, err := l.adopt(ctx, queue, limiter)
			if adopted += n; err != nil {
				return adopted, fmt.Errorf("take over line %q of queue %q: %w", limiter, queue, err)
			}
			if !more {
				break
			}
		}
		// What workers of that version still need they make anew.
		k := oldKeysOf(limiter, queue)
		_, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.ZRem(ctx, index, limiter)
			p.Del(ctx, k.clock)
			return nil
		})
		if err != nil {
			return adopted, fmt.Errorf("remove the line of limiter %q of the version before this one: %w", limiter, err)
		}
	}
	return adopted, nil
}

// adopt takes the first tasks of a line over.
func (l *Lines) adopt(ctx context.Context, queue, limiter string) (adopted int64, more bool, err error) {
	k := oldKeysOf(limiter, queue)
	names, err := l.rdb.ZRange(ctx, k.line, 0, adoptBatch-1).Result()
	if err != nil {
		return 0, false, err
	}
	more = len(names) == adoptBatch
	called, err := l.rdb.HKeys(ctx, k.called).Result()
	if err != nil {
		return 0, false, err
	}
	for _, name := range called { // perhaps by a worker that died before it brought them
		if strings.HasPrefix(name, url.QueryEscape(queue)+":") {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return 0, false, nil
	}
	kept, err := l.rdb.HMGet(ctx, k.kept, names...).Result()
	if err != nil {
		return 0, false, err
	}
	costs, err := l.rdb.HMGet(ctx, k.costs, names...).Result()
	if err != nil {
		return 0, false, err
	}
	args := []any{queuePrefix(queue), limiter}
	for i, name := range names {
		_, id, _ := strings.Cut(name, ":")
		since, back := parseKept(text(kept[i]))
		cost, err := strconv.ParseInt(text(costs[i]), 10, 64)
		if err != nil {
			cost = 1
		}
		args = append(args, id, since*1000+int64(i), back, cost, fallbackOf(id))
	}
	keys := []string{retryKey(queue), scheduledKey(queue), lineKey(queue, limiter), linesKey(queue, limiter)}
	if adopted, err = l.adopted.Run(ctx, l.rdb, keys, args...).Int64(); err != nil {
		return 0, false, err
	}
	// Last: a process that dies before leaves tasks in both lines, and both find
	// out whether they are still there.
	_, err = l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZRem(ctx, k.line, anys(names)...)
		p.HDel(ctx, k.called, names...)
		p.HDel(ctx, k.kept, names...)
		p.HDel(ctx, k.costs, names...)
		return nil
	})
	return adopted, more, err
}

// parseKept reads since when a task is parked and when asynq brings it back.
func parseKept(s string) (ms, seconds int64) {
	since, back, _ := strings.Cut(s, " ")
	ms, err := strconv.ParseInt(since, 10, 64)
	seconds, berr := strconv.ParseInt(back, 10, 64)
	if errors.Join(err, berr) != nil {
		return 1, 0
	}
	return max(ms, 1), seconds
}

func text(v any) string {
	s, _ := v.(string)
	return s
}
