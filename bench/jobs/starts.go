package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

// start is a job that started. Of an HTTP job it is the arrival of its request.
type start struct {
	at      time.Time
	worker  any
	payload string // "" for HTTP jobs
}

// fleet records when jobs started.
type fleet struct {
	mu     sync.Mutex
	starts []start
	want   int
	done   chan struct{}
	err    error // of hear, once done is closed
}

// handler is the handler of a worker.
func (f *fleet) handler(worker int) func(context.Context, *asynq.Task) error {
	return func(_ context.Context, task *asynq.Task) error {
		f.started(worker, string(task.Payload()))
		return nil
	}
}

// hear waits for the arrivals of an API. They are the starts of HTTP jobs.
func (f *fleet) hear(a *api) {
	f.starts, f.err = a.wait()
	close(f.done)
}

// started reads the clock under the lock, so that the starts are in order.
func (f *fleet) started(worker any, payload string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.starts = append(f.starts, start{time.Now(), worker, payload}); len(f.starts) == f.want {
		close(f.done)
	}
}

// seen returns a copy of the starts.
func (f *fleet) seen() []start {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.starts)
}

func spread(starts []start) time.Duration { return starts[len(starts)-1].at.Sub(starts[0].at) }

// tenths is how many jobs started in each tenth of a second after the first.
func tenths(starts []start) (n []int) {
	for _, s := range starts {
		tenth := int(s.at.Sub(starts[0].at) / (time.Second / 10))
		for len(n) <= tenth {
			n = append(n, 0)
		}
		n[tenth]++
	}
	return n
}

// busiest is the largest number of starts within any second of those that share a limit.
func busiest(starts []start, of func(start) any) (most int) {
	within := map[any][]time.Time{} // the second that ends with a start
	for _, s := range starts {
		times := append(within[of(s)], s.at)
		for s.at.Sub(times[0]) >= interval {
			times = times[1:]
		}
		within[of(s)] = times
		most = max(most, len(times))
	}
	return most
}
