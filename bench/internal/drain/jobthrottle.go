package drain

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/worker"
)

// serveWaiting lets all slots wait for permits: there is nothing else to do for them.
func serveWaiting(ctx context.Context, addr string, l Load, start func()) error {
	return serveWorker(ctx, addr, l, start, l.Slots, worker.JobConfig{Hold: "forever"})
}

// serveParking is the worker as it is without settings: half of the slots wait, the other tasks park.
func serveParking(ctx context.Context, addr string, l Load, start func()) error {
	return serveWorker(ctx, addr, l, start, 0, worker.JobConfig{})
}

func serveWorker(ctx context.Context, addr string, l Load, start func(), maxWaiting int, job worker.JobConfig) error {
	cfg := worker.DefaultConfig()
	cfg.Redis.Addrs = []string{addr}
	cfg.Limits = map[string]worker.LimitConfig{
		l.Limit.Name: {Rate: fmt.Sprintf("%d/%v", l.Limit.Permits, l.Limit.Interval)},
	}
	cfg.Pools = []worker.PoolConfig{{Name: "bench", Concurrency: l.Slots, MaxWaiting: maxWaiting}}
	job.Limits = []string{l.Limit.Name}
	cfg.Jobs = map[string]worker.JobConfig{taskType: job}
	w, err := worker.New(cfg, zap.NewNop())
	if err != nil {
		return err
	}
	w.HandleFunc(taskType, func(context.Context, *asynq.Task) error {
		start()
		return nil
	})
	return w.Run(ctx)
}
