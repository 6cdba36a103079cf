// Package presence records which workers are running. Each process that runs jobs writes to
// Redis, every few seconds, what it serves and how busy it is. Pages and commands read it.
// Nothing that decides about jobs does.
//
//	jobthrottle:worker:<id>  hash: see Worker; it expires when its worker is silent
//	jobthrottle:workers      zset: id -> when it was last heard of, in milliseconds of Redis's clock
//
// Only this package uses these keys.
package presence

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// Every is how often a worker says that it is running.
	Every = 5 * time.Second
	// lasts is how long that counts.
	lasts = 3 * Every
	// MaxWorkers is how many workers Read returns at most.
	MaxWorkers = 1000
)

// Keys are patterns of the keys that a worker writes, for ACLs.
func Keys() []string { return []string{workerKey("*"), workersKey} }

const workersKey = "jobthrottle:workers"

func workerKey(id string) string { return "jobthrottle:worker:" + id }

//go:embed lua/here.lua
var hereLua string

// Here says that a worker is running, with the caller's pipeline.
func Here(ctx context.Context, p redis.Pipeliner, w Worker) {
	p.HSet(ctx, workerKey(w.ID), w.fields()...)
	p.PExpire(ctx, workerKey(w.ID), lasts)
	p.Eval(ctx, hereLua, []string{workersKey}, w.ID, lasts.Milliseconds())
}

// Gone says that a worker has ended, with the caller's pipeline.
func Gone(ctx context.Context, p redis.Pipeliner, id string) {
	p.Del(ctx, workerKey(id))
	p.ZRem(ctx, workersKey, id)
}

// Read returns the running workers, by host, process and id: at most MaxWorkers, those that
// were heard of last. It is two round trips.
func Read(ctx context.Context, rdb redis.UniversalClient) ([]Worker, error) {
	wrap := func(err error) error { return fmt.Errorf("read which workers are here: %w", err) }
	found, err := rdb.ZRevRangeByScoreWithScores(ctx, workersKey, &redis.ZRangeBy{Min: "-inf", Max: "+inf", Count: MaxWorkers}).Result()
	if err != nil {
		return nil, wrap(err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	hashes := make([]*redis.MapStringStringCmd, len(found))
	ids := make([]string, len(found))
	if _, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, z := range found {
			ids[i], _ = z.Member.(string)
			hashes[i] = p.HGetAll(ctx, workerKey(ids[i]))
		}
		return nil
	}); err != nil {
		return nil, wrap(err)
	}
	var workers []Worker
	for i, z := range found {
		if w, ok := parse(ids[i], hashes[i].Val()); ok {
			w.Seen = time.UnixMilli(int64(min(max(z.Score, 0), 1<<43)))
			workers = append(workers, w)
		}
	}
	slices.SortFunc(workers, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.PID, b.PID), cmp.Compare(a.ID, b.ID))
	})
	return workers, nil
}
