package line

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// orderKept is how long the order of a limiter is kept after a task was last put into it: longer
// than asynq's delays between the retries of a task.
const orderKept = 30 * 24 * time.Hour

func orderKey(queue, limiter string) string { return queuePrefix(queue) + "jt:order:" + limiter }

func untoldKey(queue string) string { return queuePrefix(queue) + "jt:untold" }

// Ordered is a task that was taken from its queue, with the limits in flight whose only slot it
// needs.
type Ordered struct {
	ID       string
	First    int64    // as in Taken
	Limiters []string // none: it has no order
}

// Standing is where a task stands among those that need the same slots.
type Standing struct {
	Told   bool   // Redis knows its limits
	IsNext bool   // it comes first of all that have not ended
	Behind string // else: the limiter in whose order it does not come first; empty: this is not known yet
}

// Order tells Redis the limits of tasks that were taken from a queue, and returns where the tasks
// stand. A task stays in order until it has ended: until it is done, archived or deleted.
func (l *Lines) Order(ctx context.Context, queue string, tasks []Ordered) ([]Standing, error) {
	args := []any{queuePrefix(queue), orderKept.Milliseconds()}
	for _, t := range tasks {
		args = append(args, t.ID, t.First, len(t.Limiters))
		for _, name := range t.Limiters {
			args = append(args, name)
		}
	}
	reply, err := l.order.Run(ctx, l.rdb, []string{untoldKey(queue)}, args...).Int64Slice()
	if err == nil && len(reply) != len(tasks) {
		err = fmt.Errorf("order.lua: %d values for %d tasks", len(reply), len(tasks))
	}
	if err != nil {
		return nil, err
	}
	standings := make([]Standing, len(tasks))
	for i, behind := range reply {
		standings[i] = Standing{Told: true, IsNext: behind == 0}
		if behind > 0 && behind <= int64(len(tasks[i].Limiters)) {
			standings[i].Behind = tasks[i].Limiters[behind-1]
		}
	}
	return standings, nil
}

// Untold returns the first of the tasks that were taken from a queue and whose limits nobody has
// told: their process died, got no answer, or does not know these limits.
func (l *Lines) Untold(ctx context.Context, queue string, most int64) ([]Taken, error) {
	found, err := l.rdb.ZRangeWithScores(ctx, untoldKey(queue), 0, most-1).Result()
	if err != nil || len(found) == 0 {
		return nil, err
	}
	messages := make([]*redis.StringCmd, len(found))
	_, err = l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, z := range found {
			messages[i] = p.HGet(ctx, TaskKey(queue, z.Member.(string)), "msg")
		}
		return nil
	})
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	tasks := make([]Taken, len(found))
	for i, z := range found {
		tasks[i] = Taken{ID: z.Member.(string), First: int64(z.Score), Message: messages[i].Val()}
	}
	return tasks, nil
}

// Ended takes ended tasks out of their orders. Tasks that it misses are taken out when another
// task of the order asks.
func (l *Lines) Ended(ctx context.Context, queue string, tasks []Ordered) error {
	args := []any{queuePrefix(queue)}
	for _, t := range tasks {
		for _, name := range t.Limiters {
			args = append(args, t.ID, name)
		}
	}
	err := l.ended.Run(ctx, l.rdb, []string{untoldKey(queue)}, args...).Err() // the key says which node of a Cluster
	if errors.Is(err, redis.Nil) {
		return nil
	}
	return err
}

// Next returns the task that comes first in the order of a limiter, and asynq's state of it. Both
// are empty if there is none, or if the task has just ended.
func (l *Lines) Next(ctx context.Context, queue, limiter string) (id, state string, err error) {
	found, err := l.rdb.ZRangeWithScores(ctx, orderKey(queue, limiter), 0, 0).Result()
	if err != nil || len(found) == 0 {
		return "", "", err
	}
	id = found[0].Member.(string)
	known, err := l.rdb.HMGet(ctx, TaskKey(queue, id), "state", "first").Result()
	if err != nil {
		return "", "", err
	}
	state, _ = known[0].(string)
	if first, _ := known[1].(string); first != fmt.Sprintf("%.0f", found[0].Score) || state != "active" && state != "pending" && state != "retry" {
		return "", "", nil
	}
	return id, state, nil
}
