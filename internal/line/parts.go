package line

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Part is what one queue has in line for a limiter, and how the limiter serves it.
type Part struct {
	Queue  string
	Tasks  int64
	Live   bool    // a process that can run its tasks visits it
	Weight float64 // 1 if no process does
	Tag    float64 // of its first task: the smallest is next
}

// Parts returns the parts of a limiter's line, one for each of the queues.
func (l *Lines) Parts(ctx context.Context, limiter string, queues []string) ([]Part, error) {
	known, now := new(redis.MapStringStringCmd), new(redis.TimeCmd)
	lengths := make([]func() int64, len(queues))
	if _, err := l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		known, now = p.HGetAll(ctx, queuesKey(limiter)), p.Time(ctx)
		for i, queue := range queues {
			lengths[i] = length(ctx, p, queue, limiter)
		}
		return nil
	}); err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	shared, err := l.SharedLengths(ctx, queues, []string{limiter})
	if err != nil {
		return nil, err
	}
	parts := make([]Part, len(queues))
	for i, queue := range queues {
		parts[i] = Part{Queue: queue, Tasks: lengths[i]() + shared[0][i], Weight: 1}
		parts[i].read(known.Val()[queue], now.Val())
	}
	return parts, nil
}

// read reads what share.lua notes about a queue.
func (p *Part) read(text string, now time.Time) {
	f := strings.Fields(text)
	if len(f) != 6 {
		return
	}
	ms, err := strconv.ParseInt(f[0], 10, 64)
	weight, werr := strconv.ParseFloat(f[1], 64)
	tag, terr := strconv.ParseFloat(f[2], 64)
	if errors.Join(err, werr, terr) != nil || weight <= 0 {
		return
	}
	p.Weight, p.Tag = weight, tag
	p.Live = now.Sub(time.UnixMilli(ms)).Abs() <= absence
}
