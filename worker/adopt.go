package worker

import (
	"context"
	_ "embed"
	"errors"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/adopt.lua
var adoptLua string

const (
	// adoptInterval is how often a worker looks for lines of the version before
	// this one. That version looks at each of its lines several times in it.
	adoptInterval = 2 * time.Second
	// adoptBatch is how many tasks of a line are moved at a time.
	adoptBatch = 500
)

// adoption moves the tasks that the version before this one has parked, in one
// line for all queues, to the lines of their queues, once no worker of that
// version is there any more: while one is, it looks at its lines, which changes
// the index.
type adoption struct {
	rdb    redis.UniversalClient
	adopt  *redis.Script
	next   time.Time
	before map[string]float64 // the index, when last looked at
	left   []string           // limiters with lines that nobody looks at
}

func newAdoption(rdb redis.UniversalClient) adoption {
	return adoption{rdb: rdb, adopt: redis.NewScript(adoptLua)}
}

// step moves some tasks, if there are any to move.
func (a *adoption) step(ctx context.Context, now time.Time) error {
	if len(a.left) == 0 {
		if now.Before(a.next) {
			return nil
		}
		a.next = now.Add(adoptInterval)
		index, err := a.index(ctx)
		if err != nil {
			return err
		}
		a.left, a.before = abandoned(a.before, index), index
	}
	var left []string
	var errs []error
	for _, limiter := range a.left {
		more, err := a.move(ctx, limiter)
		if err != nil {
			errs = append(errs, err)
		} else if more {
			left = append(left, limiter)
		}
	}
	a.left = left
	return errors.Join(errs...)
}

func (a *adoption) index(ctx context.Context) (map[string]float64, error) {
	entries, err := a.rdb.ZRangeWithScores(ctx, oldIndexKey, 0, maxLines-1).Result()
	if err != nil || len(entries) == 0 {
		return nil, err
	}
	index := make(map[string]float64, len(entries))
	for _, z := range entries {
		if name, ok := z.Member.(string); ok {
			index[name] = z.Score
		}
	}
	return index, nil
}

// abandoned are the lines that nobody has looked at between two looks at the index.
func abandoned(before, now map[string]float64) (limiters []string) {
	for _, name := range sortedKeys(now) {
		if score, ok := before[name]; ok && score == now[name] {
			limiters = append(limiters, name)
		}
	}
	return limiters
}

// move moves the first tasks of a limiter's old line, and says whether there are more.
func (a *adoption) move(ctx context.Context, limiter string) (more bool, err error) {
	k := keysOf(limiter)
	names, err := a.rdb.ZRange(ctx, k.old.line, 0, adoptBatch-1).Result()
	if err != nil {
		return false, err
	}
	away, err := a.rdb.HGetAll(ctx, k.old.called).Result()
	if err != nil {
		return false, err
	}
	// Noted before, in case this worker does not live to do it after, and after, so
	// that a look which found the line empty sees the score changed.
	queues := queuesOfTasks(append(names, sortedKeys(away)...))
	if err := a.note(ctx, limiter, queues); err != nil {
		return false, err
	}
	left, err := a.adopt.Run(ctx, a.rdb, []string{
		k.old.line, k.old.called, k.old.clock, k.old.costs, k.old.since, k.clock, k.costs, k.kept, k.lines,
	}, adoptBatch).Int64()
	if err != nil {
		return false, err
	}
	if err := a.note(ctx, limiter, queues); err != nil || left > 0 {
		return err == nil, err
	}
	return false, a.rdb.ZRem(ctx, oldIndexKey, limiter).Err()
}

func (a *adoption) note(ctx context.Context, limiter string, queues []string) error {
	_, err := a.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for _, queue := range queues {
			p.ZIncrBy(ctx, indexPrefix+queue, 0.001, limiter)
		}
		return nil
	})
	return err
}

// queuesOfTasks are the queues of tasks in line, escaped as there.
func queuesOfTasks(names []string) []string {
	queues := map[string]bool{}
	for _, name := range names {
		if queue, _, ok := strings.Cut(name, ":"); ok {
			queues[queue] = true
		}
	}
	return sortedKeys(queues)
}
