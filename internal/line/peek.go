package line

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// sortsFor is for how long a process that has looked at a queue sorts it alone.
	sortsFor = 50 * time.Millisecond
	// peekBytes bounds the messages that one call reads: Redis answers nobody else meanwhile.
	peekBytes = 1 << 20
)

// EndSort lets other processes sort a queue at once, if this one sorts it.
func (l *Lines) EndSort(ctx context.Context, queue, process string) error {
	sorter, err := l.rdb.Get(ctx, sorterKey(queue)).Result()
	switch {
	case errors.Is(err, redis.Nil):
		return nil
	case err != nil:
		return err
	case !strings.HasSuffix(sorter, " "+process):
		return nil
	}
	return l.rdb.Del(ctx, sorterKey(queue)).Err()
}

// Peek returns the next tasks of a queue as if they were taken now, and leaves them in the queue.
// It returns at most most tasks, or at most few if another process sorts the queue. sorts says that
// this process sorts it. Large tasks need several calls, which Peek makes until they have lasted for
// lasts together. cut says that it has left some of the tasks unread. It returns no tasks if the
// queue is empty or paused.
func (l *Lines) Peek(ctx context.Context, queue, process string, most, few int, lasts time.Duration) (tasks []Taken, sorts, cut bool, err error) {
	began := time.Now()
	if tasks, sorts, cut, err = l.peekFrom(ctx, queue, process, 0, most, min(few, most)); !cut || !sorts {
		return tasks, sorts, cut, err
	}
	for cut && time.Since(began) < lasts {
		last := len(tasks) - 1
		more, still, goesOn, err := l.peekFrom(ctx, queue, process, last, most-last, 0)
		if err != nil {
			return nil, false, false, err
		}
		if !still || len(more) < 2 || more[0].ID != tasks[last].ID { // others have taken some, or put some before them
			break
		}
		tasks, cut = append(tasks, more[1:]...), goesOn
	}
	return tasks, true, cut, nil
}

// peekFrom reads the next tasks behind the first n, in one call.
func (l *Lines) peekFrom(ctx context.Context, queue, process string, n, most, few int) (tasks []Taken, sorts, cut bool, err error) {
	reply, err := l.peek.Run(ctx, l.rdb, []string{pendingKey(queue), pausedKey(queue), sorterKey(queue)},
		queuePrefix(queue), most, few, process, sortsFor.Milliseconds(), peekBytes, n).StringSlice()
	if errors.Is(err, redis.Nil) {
		return nil, false, false, nil
	}
	if err != nil {
		return nil, false, false, err
	}
	if len(reply)%4 != 3 {
		return nil, false, false, fmt.Errorf("peek.lua: unexpected reply of %d values", len(reply))
	}
	at, _ := strconv.ParseInt(reply[0], 10, 64)
	tasks = make([]Taken, 0, len(reply)/4)
	for i := 3; i < len(reply); i += 4 {
		t := Taken{Message: reply[i], ID: reply[i+1], By: reply[i+3], At: at}
		t.Wait, _ = ParseWait(reply[i+2])
		tasks = append(tasks, t)
	}
	return tasks, reply[1] == "1", reply[2] == "1", nil
}
