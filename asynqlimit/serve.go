package asynqlimit

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// ErrNotOurClient is what [Limits.Serve] returns for a server that was not made with
// [Limits.Redis].
var ErrNotOurClient = errors.New("asynqlimit: make the server with asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(...))")

// ErrNotConfigured is what [Limits.Serve] returns if [Limits.Configure] was not called: the server would take jobs without
// them, and its ErrorHandler would see jobs that only wait.
var ErrNotConfigured = errors.New("asynqlimit: the server has a configuration of its own: give NewServerFromRedisClient limits.Configure(config) in place of config")

// Serve applies the limits of the configuration, except where an operator has pinned one. It runs
// the server with the handler, usually an [*asynq.ServeMux], until ctx ends, and then shuts it
// down: nothing starts any more, jobs that wait go back to the heads of their queues, and jobs
// that run get the server's ShutdownTimeout. Call it once, in place of the server's Run, and do not call the server's
// Stop or Shutdown. It does not listen to signals: see [os/signal.NotifyContext].
//
// It returns nil after that, or the reason why it could not start: [ErrNotConfigured] or [ErrNotOurClient], for
// example. A server that is started in another way gets no jobs, and the log says why. Neither does a second server that was
// made with the same limits: see [Limits.Another].
func (l *Limits) Serve(ctx context.Context, srv *asynq.Server, handler asynq.Handler) (err error) {
	switch {
	case srv == nil || handler == nil:
		return errors.New("asynqlimit: Serve needs a server and a handler")
	case !l.served.CompareAndSwap(false, true):
		return errors.New("asynqlimit: Serve was called before: a second server needs limits of its own, from Limits.Another")
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if !l.configured.Load() {
		return ErrNotConfigured
	}
	l.pings.Store(true)
	err = srv.Ping()
	l.pings.Store(false)
	if err != nil {
		return fmt.Errorf("asynqlimit: reach Redis: %w", err)
	}
	if !l.reached.Load() {
		return ErrNotOurClient
	}
	if err := l.Apply(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before it began
		}
		return err
	}
	l.lacks = l.unservedBy(handler)
	l.handlers, _ = handler.(mux)
	l.tellUnserved()
	l.warned.Do(func() {
		for _, w := range l.cfg.Warnings() {
			l.logger.Warn("the configuration may have a mistake", "error", w)
		}
	})
	l.serving.Store(true)
	defer l.serving.Store(false)
	listing, stopListing := context.WithCancel(context.WithoutCancel(ctx))
	var lists sync.WaitGroup
	lists.Go(func() { l.rooms.run(listing) })
	lists.Go(func() { l.page.run(listing) })
	lists.Go(func() { l.watch(listing) })
	defer lists.Wait()
	defer stopListing()
	if err := srv.Start(l.middleware(handler)); err != nil {
		return fmt.Errorf("asynqlimit: start the server: %w", err)
	}
	l.takes.Store(true)
	l.here.again()
	lists.Go(func() { l.here.run(listing) })
	calling, stopCalling := context.WithCancel(context.WithoutCancel(ctx))
	var calls sync.WaitGroup
	calls.Go(func() { l.caller.run(calling) })
	<-ctx.Done()
	defer l.drains()()
	l.takes.Store(false)
	l.here.again()
	stopCalling()
	l.gate.close()
	srv.Stop() // waits until it takes no more tasks
	calls.Wait()
	l.intake.giveBack(context.WithoutCancel(ctx))
	l.lateAt.Store(time.Now().Add(l.timeout * 9 / 10).UnixNano())
	l.drain()
	defer time.AfterFunc(l.left(), l.giveUp).Stop()
	ending, cancel := context.WithTimeout(listing, l.timeout)
	defer cancel()
	srv.Shutdown()
	l.attempts.awaitEnds(ending) // Shutdown returns at once if somebody else has called it
	settling, cancel := context.WithTimeout(listing, settleTimeout)
	defer cancel()
	_ = l.caller.flushOrders(settling) // tasks that have ended meanwhile; if this fails, Redis finds out without us
	_ = l.caller.chargeOwed(settling)  // what tasks got, and gave back, meanwhile; if this fails, somebody is behind by a few jobs
	return nil
}

// Takes reports whether the server takes jobs: Serve has started it, and it does not drain.
func (l *Limits) Takes() bool { return l.takes.Load() && l.draining.Err() == nil }

// Ping implements redis.UniversalClient. Serve makes the server ping, to find out whether it has
// this client.
func (c client) Ping(ctx context.Context) *redis.StatusCmd {
	if c.l.pings.Load() {
		c.l.reached.Store(true)
		c.owner.serve()
	}
	return c.UniversalClient.Ping(ctx)
}

// Apply sets the limits that are not keyed, as [Limits.Serve] does. The others are applied when a
// job brings the value. If the key of a limit holds data of another type, Apply logs that and goes on
// with the next limit: only the jobs of that limit wait.
func (l *Limits) Apply(ctx context.Context) error {
	for _, limit := range l.rules.plan.Limits() {
		if limit.Key != "" {
			continue
		}
		limiter, err := l.throttle.Limiter(limit.Name)
		if err != nil {
			return err
		}
		_, err = limiter.ApplyAdapt(ctx, limit.Rate, limit.Adapt)
		switch {
		case errors.Is(err, throttle.ErrWrongType):
			if l.reports.add(time.Now(), "apply "+limit.Name) > 0 { // each server of the process applies it
				l.logger.Error("cannot apply a limit: its jobs wait", "limit", limit.Name, "error", err,
					"fix", "rename the limit, or delete the key of its name with redis-cli")
			}
		case err != nil:
			return fmt.Errorf("apply limit %q: %w", limit.Name, err)
		}
	}
	return nil
}
