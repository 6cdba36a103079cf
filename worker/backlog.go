package worker

import (
	"context"
	"sync"

	"github.com/redis/go-redis/v9"
)

// maxBacklog is how many limiters with a line a worker remembers, of each queue.
// A fresh task of one that it does not remember may overtake those in line.
const maxBacklog = 1000

// backlog is what a worker knows of which limiters have a line. All workers note
// it in the indexes; those that serve a queue read them now and then.
type backlog struct {
	mu    sync.Mutex
	lines map[string]map[string]bool // by queue, then by limiter
	old   map[string]float64         // those that have a line of the version before this one, whose workers may be there
}

// add notes a line.
func (b *backlog) add(queue, limiter string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lines == nil {
		b.lines = map[string]map[string]bool{}
	}
	if b.lines[queue] == nil {
		b.lines[queue] = map[string]bool{}
	}
	if lined := b.lines[queue]; len(lined) < maxBacklog {
		lined[limiter] = true
	}
}

func (b *backlog) lined(queue string, limiters []string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lined []string
	for _, name := range limiters {
		if _, old := b.old[name]; old || b.lines[queue][name] {
			lined = append(lined, name)
		}
	}
	return lined
}

// has says whether the limiter has, as far as this worker knows, a line of the queue.
func (b *backlog) has(queue, limiter string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines[queue][limiter]
}

// beside learns which limiters have a line of the version before this one.
func (b *backlog) beside(old map[string]float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.old = old
}

// isOld says whether the limiter has a line of the version before this one.
func (b *backlog) isOld(limiter string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, old := b.old[limiter]
	return old
}

// refresh learns from what all workers noted which limiters have a line of these
// queues, and returns the queues that have one and are not paused in asynq.
func (b *backlog) refresh(ctx context.Context, rdb redis.UniversalClient, queues []string) (running []string, err error) {
	lines := map[string]map[string]bool{}
	if running, err = readBacklog(ctx, rdb, queues, lines); err != nil {
		return nil, err
	}
	b.mu.Lock()
	b.lines = lines
	b.mu.Unlock()
	return running, nil
}

func readBacklog(ctx context.Context, rdb redis.UniversalClient, queues []string, lines map[string]map[string]bool) (running []string, err error) {
	indexes := make([]string, len(queues))
	for i, queue := range queues {
		indexes[i] = indexOf(queue)
	}
	if any, err := rdb.Exists(ctx, indexes...).Result(); err != nil || any == 0 {
		return nil, err
	}
	names, paused := make([]*redis.StringSliceCmd, len(queues)), make([]*redis.IntCmd, len(queues))
	if _, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, queue := range queues {
			names[i] = p.ZRange(ctx, indexes[i], 0, maxBacklog-1)
			paused[i] = p.Exists(ctx, "asynq:{"+queue+"}:paused")
		}
		return nil
	}); err != nil {
		return nil, err
	}
	for i, queue := range queues {
		if len(names[i].Val()) == 0 {
			continue
		}
		lined := make(map[string]bool, len(names[i].Val()))
		for _, name := range names[i].Val() {
			lined[name] = true
		}
		lines[queue] = lined
		if paused[i].Val() == 0 {
			running = append(running, queue)
		}
	}
	return running, nil
}
