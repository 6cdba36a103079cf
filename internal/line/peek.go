package line

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Peek returns the next tasks of a queue, at most so many, as if they were taken now, and leaves
// them there. There are none if the queue is empty or paused.
func (l *Lines) Peek(ctx context.Context, queue string, most int) ([]Taken, error) {
	reply, err := l.peek.Run(ctx, l.rdb, []string{pendingKey(queue), pausedKey(queue)}, queuePrefix(queue), most).StringSlice()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if len(reply)%4 != 1 {
		return nil, fmt.Errorf("peek.lua: unexpected reply of %d values", len(reply))
	}
	at, _ := strconv.ParseInt(reply[0], 10, 64)
	tasks := make([]Taken, 0, len(reply)/4)
	for i := 1; i < len(reply); i += 4 {
		t := Taken{Message: reply[i], ID: reply[i+1], By: reply[i+3], At: at}
		t.Wait, _ = ParseWait(reply[i+2])
		tasks = append(tasks, t)
	}
	return tasks, nil
}
