package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
	"github.com/jobthrottle/jobthrottle/internal/wire"
	"github.com/jobthrottle/jobthrottle/worker"
)

// idle is how long the fleet is measured without jobs. That cost is subtracted.
const idle = 3 * time.Second

// result is the time and the cost of a backlog.
type result struct {
	starts     []start
	calls, cpu float64 // for each job, without the cost of an idle fleet; cpu in microseconds
}

func (r row) measure(ctx context.Context, server *redisserver.Server, free bool) (_ result, failed error) {
	if err := server.Flush(ctx); err != nil {
		return result{}, err
	}
	f := &fleet{want: r.jobs, done: make(chan struct{})}
	host := ""
	if r.http {
		api, err := startAPI(ctx, r.jobs)
		if err != nil {
			return result{}, err
		}
		defer func() { failed = errors.Join(failed, api.stop(f.done)) }()
		host = api.addr
		go f.hear(api)
	}
	if err := r.enqueue(ctx, server.Addr, host); err != nil {
		return result{}, err
	}
	addr := server.Addr
	if r.away > 0 {
		way, err := wire.New(addr)
		if err != nil {
			return result{}, err
		}
		defer way.Close()
		way.Set(wire.Trouble{Delay: r.away})
		addr = way.Addr
	}
	before, err := server.Usage(ctx)
	if err != nil {
		return result{}, err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	errs := make([]error, r.workers)
	began := time.Now()
	for i := range r.workers {
		w, err := worker.New(r.config(addr, host, free), zap.NewNop())
		if err != nil {
			return result{}, err
		}
		w.HandleFunc(taskType, f.handler(i))
		wg.Go(func() { errs[i] = w.Run(running) })
	}
	select {
	case <-f.done:
	case <-ctx.Done():
		return result{}, ctx.Err()
	case <-time.After(5 * time.Minute):
		return result{}, errors.New("not done within 5 minutes")
	}
	if f.err != nil {
		return result{}, f.err
	}
	worked := time.Since(began)
	after, err := server.Usage(ctx)
	if err != nil {
		return result{}, err
	}
	<-time.After(idle)
	rest, err := server.Usage(ctx)
	if err != nil {
		return result{}, err
	}
	stop()
	wg.Wait()
	used, resting := after.Sub(before), rest.Sub(after)
	net := float64(worked) / float64(idle)
	return result{
		starts: f.seen(),
		calls:  (float64(used.ScriptCalls) - net*float64(resting.ScriptCalls)) / float64(r.jobs),
		cpu:    (float64(used.CPU) - net*float64(resting.CPU)) / float64(r.jobs) / float64(time.Microsecond),
	}, errors.Join(errs...)
}
