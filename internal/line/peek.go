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

// Peek returns the next tasks of a queue as if they were taken now, and leaves them there. It
// returns at most so many, and at most few if another process sorts the queue: sorts says that
// this process does. It returns fewer if they are large. There are none if the queue is empty or
// paused.
func (l *Lines) Peek(ctx context.Context, queue, process string, most, few int) (tasks []Taken, sorts bool, err error) {
	reply, err := l.peek.Run(ctx, l.rdb, []string{pendingKey(queue), pausedKey(queue), sorterKey(queue)},
		queuePrefix(queue), most, min(few, most), process, sortsFor.Milliseconds(), peekBytes).StringSlice()
	if errors.Is(err, redis.Nil) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	if len(reply)%4 != 2 {
		return nil, false, fmt.Errorf("peek.lua: unexpected reply of %d values", len(reply))
	}
	at, _ := strconv.ParseInt(reply[0], 10, 64)
	tasks = make([]Taken, 0, len(reply)/4)
	for i := 2; i < len(reply); i += 4 {
		t := Taken{Message: reply[i], ID: reply[i+1], By: reply[i+3], At: at}
		t.Wait, _ = ParseWait(reply[i+2])
		tasks = append(tasks, t)
	}
	return tasks, reply[1] == "1", nil
}
