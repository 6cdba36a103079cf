// Package drain has the measured ways to run asynq tasks no faster than a limit allows. Each
// starts with a full queue.
package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
)

const taskType = "bench:task"

// Load is the tasks to run.
type Load struct {
	Limit    fleet.Limit
	Guard    time.Duration // of the limit, where this project keeps it; zero: the default
	Tasks    int
	Servers  int // that share the limit, each with a Redis client of its own
	Slots    int // of each server
	Queues   map[string]int
	Patience time.Duration // how long to wait for tasks that do not start
}

// Way is one way to run the tasks. Serve runs one server until ctx ends. It calls start when a
// task has what it needs to begin.
type Way struct {
	Name  string
	Serve serve
}

type serve func(ctx context.Context, addr string, l Load, start func()) error

// The names of the ways in tables.
const (
	NameWaiting = "jobthrottle, waiting in its worker"
	NameParking = "jobthrottle, parking (default)"
	NameWiki    = "wiki recipe, with asynq's defaults"
	NameEager   = "wiki recipe, polling as often as jobthrottle"
	NameAlone   = "asynq alone, no limit"
)

// Ways returns all ways.
func Ways() []Way {
	return []Way{
		{NameWaiting, serveWaiting},
		{NameParking, serveParking},
		{NameWiki, wiki(0, 0)},
		{NameEager, wiki(50*time.Millisecond, time.Second)}, // what package worker sets
		{NameAlone, serveAlone},
	}
}

// Run enqueues the tasks in the Redis of addr, which must be empty, and runs them. It returns
// their starts in the order of time. Tasks that have not started when Patience ends are
// missing.
func Run(ctx context.Context, addr string, l Load, way Way) ([]fleet.Use, error) {
	if err := enqueue(ctx, addr, l.Tasks); err != nil {
		return nil, fmt.Errorf("enqueue: %w", err)
	}
	serving, stop := context.WithTimeout(ctx, l.Patience)
	defer stop()
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		starts []fleet.Use
		failed error
		begin  = time.Now()
	)
	for server := range l.Servers {
		wg.Go(func() {
			err := way.Serve(serving, addr, l, func() {
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, fleet.Use{At: time.Since(begin), Permits: 1, Client: uint16(server)})
				if len(starts) == l.Tasks {
					stop()
				}
			})
			if err != nil {
				stop()
				mu.Lock()
				defer mu.Unlock()
				failed = errors.Join(failed, fmt.Errorf("server %d: %w", server, err))
			}
		})
	}
	wg.Wait()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	slices.SortFunc(starts, func(a, b fleet.Use) int { return cmp.Compare(a.At, b.At) })
	return starts, failed
}

func enqueue(ctx context.Context, addr string, tasks int) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	client := asynq.NewClientFromRedisClient(rdb)
	for range tasks {
		if _, err := client.EnqueueContext(ctx, asynq.NewTask(taskType, nil)); err != nil {
			return err
		}
	}
	return nil
}
