//go:build unix

package fault

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/site"
)

// one returns a random worker.
func one(s *site.Site, r *rand.Rand) *site.Worker { return s.Workers[r.IntN(len(s.Workers))] }

func killWorker(ctx context.Context, s *site.Site, r *rand.Rand) error {
	w := one(s, r)
	w.Kill()
	<-ctx.Done()
	return w.Start()
}

func stopWorker(ctx context.Context, s *site.Site, r *rand.Rand) error {
	w := one(s, r)
	if err := w.Freeze(); err != nil {
		return err
	}
	<-ctx.Done()
	return w.Thaw()
}

// shiftClock replaces a worker for a time with one whose clock is fast or slow.
func shiftClock(ctx context.Context, s *site.Site, r *rand.Rand) error {
	seconds := 3600
	if r.IntN(2) == 0 {
		seconds = -seconds
	}
	w := one(s, r)
	if err := errors.Join(w.Drain(), w.StartShifted(seconds)); err != nil {
		return err
	}
	<-ctx.Done()
	return errors.Join(w.Drain(), w.Start())
}

func killRedis(ctx context.Context, s *site.Site, _ *rand.Rand) error {
	s.Redis.Kill()
	<-ctx.Done()
	return s.Redis.Restart()
}

func stopRedis(ctx context.Context, s *site.Site, _ *rand.Rand) error {
	if err := s.Redis.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	<-ctx.Done()
	return s.Redis.Signal(syscall.SIGCONT)
}

// fillRedis sets maxmemory so low that what is stored is too much.
func fillRedis(ctx context.Context, s *site.Site, _ *rand.Rand) error {
	set := func(maxmemory string) error {
		return s.Client.ConfigSet(context.WithoutCancel(ctx), "maxmemory", maxmemory).Err()
	}
	if err := set("1"); err != nil {
		return err
	}
	<-ctx.Done()
	return set("0")
}

func flushScripts(ctx context.Context, s *site.Site, _ *rand.Rand) error {
	return every(ctx, 100*time.Millisecond, func(ctx context.Context) error { return s.Client.ScriptFlush(ctx).Err() })
}

func killClients(ctx context.Context, s *site.Site, _ *rand.Rand) error {
	return every(ctx, 250*time.Millisecond, func(ctx context.Context) error {
		for _, kind := range []string{"normal", "pubsub"} { // SKIPME is the default
			if err := s.Client.ClientKillByFilter(ctx, "TYPE", kind).Err(); err != nil {
				return err
			}
		}
		return nil
	})
}

// flushAll deletes everything, and then enqueues again: without jobs, the run would show
// nothing about the limit.
func flushAll(ctx context.Context, s *site.Site, _ *rand.Rand) error {
	if err := s.Client.FlushAll(ctx).Err(); err != nil {
		return err
	}
	if err := s.Enqueue(context.WithoutCancel(ctx), len(s.Enqueued())); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// every does something again and again until ctx ends.
func every(ctx context.Context, interval time.Duration, do func(context.Context) error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := do(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
