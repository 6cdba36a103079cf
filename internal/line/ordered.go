package line

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// orderKept is how long the order of a limiter is kept since a task was last put into
	// it: longer than asynq's delays between the retries of a task.
	orderKept = 30 * 24 * time.Hour
	// untoldFor is how long a process that has a task may take to tell its limits. Then the
	// process has no such limits, or its tasks are back in their queue.
	untoldFor = 3 * time.Minute
)

func orderKey(queue, limiter string) string { return queuePrefix(queue) + "jt:order:" + limiter }

func unreadKey(queue string) string { return queuePrefix(queue) + "jt:unread" }

// Ordered is a task that was taken from its queue, with the limits in flight whose only
// slot it needs.
type Ordered struct {
	ID       string
	Arrival  int64    // by Redis's clock, in microseconds after 1970
	Limiters []string // none: it has no order
}

// Standing is where a task stands among those that need the same slots.
type Standing struct {
	First  int64  // when it was first taken from its queue, as Arrival
	IsNext bool   // it comes first of all that have not ended
	Behind string // else: the limiter in whose order it does not; empty: it is not known yet
}

// Order puts tasks that were taken from a queue in order, and says where they stand. Each
// stays where it is until it has ended: done, archived or deleted.
func (l *Lines) Order(ctx context.Context, queue string, tasks []Ordered) ([]Standing, error) {
	args := []any{queuePrefix(queue), orderKept.Milliseconds(), int64(untoldFor.Seconds())}
	for _, t := range tasks {
		args = append(args, t.ID, t.Arrival, len(t.Limiters))
		for _, name := range t.Limiters {
			args = append(args, name)
		}
	}
	reply, err := l.order.Run(ctx, l.rdb, []string{unreadKey(queue)}, args...).Result()
	if err != nil {
		return nil, err
	}
	r, standings := reader{reply: reply}, make([]Standing, len(tasks))
	for i, t := range tasks {
		first, wrong := strconv.ParseInt(r.text(), 10, 64)
		behind := r.int()
		standings[i] = Standing{First: first, IsNext: behind == 0}
		switch {
		case wrong != nil || behind > int64(len(t.Limiters)):
			r.bad = true
		case behind > 0:
			standings[i].Behind = t.Limiters[behind-1]
		}
	}
	return standings, r.failed("order.lua")
}

// Ended takes tasks that have ended out of their orders. What it misses leaves them when
// another task looks.
func (l *Lines) Ended(ctx context.Context, queue string, tasks []Ordered) error {
	_, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, t := range tasks {
			at := strconv.FormatInt(t.Arrival, 10) // not another of this id, which came later
			for _, name := range t.Limiters {
				p.ZRemRangeByScore(ctx, orderKey(queue, name), at, at)
			}
		}
		return nil
	})
	return err
}

// Next returns the task that comes first in the order of a limiter, and asynq's state of
// it: empty if there is none, or if it has just ended.
func (l *Lines) Next(ctx context.Context, queue, limiter string) (id, state string, err error) {
	ids, err := l.rdb.ZRange(ctx, orderKey(queue, limiter), 0, 0).Result()
	if err != nil || len(ids) == 0 {
		return "", "", err
	}
	state, err = l.rdb.HGet(ctx, TaskKey(queue, ids[0]), "state").Result()
	if errors.Is(err, redis.Nil) || err == nil && state != "active" && state != "pending" && state != "retry" {
		return "", "", nil
	}
	return ids[0], state, err
}
