package line

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Taken is a task that was taken from its queue.
type Taken struct {
	Message any // as asynq stores it
	ID      string
	By      string // which take this was, as Redis notes it; of a task that Peek returned, how it was seen
	At      int64  // by Redis's clock, in microseconds after 1970: each later than the one before it
	First   int64  // the same for its first take, never going back with Redis's clock; 0: nobody keeps orders
	Wait    Wait   // zero if it never waited
}

// Waited reports whether the task has waited, and has not run since.
func (t Taken) Waited() bool { return t.Wait.State != "" && t.Wait.State != Arrived }

// Arrival is the first arrival of a task that has waited. For other tasks it is when the task was
// taken.
func (t Taken) Arrival() int64 {
	if t.Waited() {
		return t.Wait.Since
	}
	return t.At
}

// Take takes the next tasks of a queue, at most so many, as asynq does, and returns how they have
// waited. There are none if the queue is empty or paused. If orders is set, the caller tells
// Redis their limits with Order.
func (l *Lines) Take(ctx context.Context, queue string, leaseEnds any, most int, orders bool) ([]Taken, error) {
	return l.TakeAs(ctx, Taker{}, queue, leaseEnds, most, orders)
}

// Taker says which take a call is: by whom, and which of its takes from the queue, counted from 1. Nobody else may have
// that ID. The zero Taker makes takes that cannot be repeated.
type Taker struct {
	ID string
	No int64
}

// tookLasts is for how long Redis remembers what somebody took last: for a lease. Twice as long would be too long: a plain
// asynq server may have the task by then, and does not note its take.
const tookLasts = 30 * time.Second

func tookKey(queue, taker string) string { return queuePrefix(queue) + "jt:took:" + taker }

// ForgetTakes forgets what was taken last, once there is no take to repeat.
func (l *Lines) ForgetTakes(ctx context.Context, taker, queue string) error {
	return l.rdb.Del(ctx, tookKey(queue, taker)).Err()
}

// TakeAs is Take for a call that can be repeated if its answer is lost. If the lost call took tasks, the call of the same
// number returns those that have not moved on since, even if they are more than most, and takes no others.
func (l *Lines) TakeAs(ctx context.Context, as Taker, queue string, leaseEnds any, most int, orders bool) ([]Taken, error) {
	keys := []string{pendingKey(queue), pausedKey(queue), activeKey(queue), leaseKey(queue), tookKey(queue, as.ID)}
	with, no := "", ""
	if orders {
		with = "orders"
	}
	if as.ID != "" {
		no = strconv.FormatInt(as.No, 10)
	}
	args := []any{leaseEnds, queuePrefix(queue), most, with, no, tookLasts.Milliseconds(), AskingCounts.Milliseconds()}
	reply, err := l.take.Run(ctx, l.rdb, keys, args...).Slice()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := 3 // values of each task
	if orders {
		n = 4
	}
	if len(reply)%n != 1 {
		return nil, fmt.Errorf("take.lua: unexpected reply of %d values", len(reply))
	}
	now, _ := reply[0].(string)
	at, _ := strconv.ParseInt(now, 10, 64)
	tasks := make([]Taken, 0, len(reply)/n)
	for i := 1; i < len(reply); i += n {
		t := Taken{Message: reply[i], By: now, At: at + int64(len(tasks))}
		t.ID, _ = reply[i+1].(string)
		text, _ := reply[i+2].(string)
		t.Wait, _ = ParseWait(text)
		if orders {
			first, _ := reply[i+3].(string)
			t.First, _ = strconv.ParseInt(first, 10, 64)
		}
		tasks = append(tasks, t)
	}
	return tasks, nil
}

// Answered is a called task whose limiter has answered it, or is not asked any more: the line from which it was called, and the
// permits that it costs.
type Answered struct {
	Line, ID string
	Cost     int64
}

// NoteAnswers notes that called tasks of a queue have their answer. Until then they count as asking, but for a second at
// most.
func (l *Lines) NoteAnswers(ctx context.Context, queue string, tasks []Answered) error {
	asking := map[string][]any{}
	for _, task := range tasks {
		key := askingKey(queue, task.Line)
		asking[key] = append(asking[key], strconv.FormatInt(task.Cost, 10)+":"+task.ID)
	}
	_, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for key, members := range asking {
			p.ZRem(ctx, key, members...)
		}
		return nil
	})
	return err
}
