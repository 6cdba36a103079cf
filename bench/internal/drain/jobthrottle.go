package drain

import (
	"context"
	"fmt"

	"github.com/hibiken/asynq"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/worker"
)

// serveWaiting lets all slots wait for permits: the server has nothing else to do.
func serveWaiting(ctx context.Context, addr string, l Load, start func()) error {
	return serveWorker(ctx, addr, l, start, l.Slots, config.Job{Hold: "forever"})
}

// serveParking is the worker with default settings: tasks for which there is no room park.
func serveParking(ctx context.Context, addr string, l Load, start func()) error {
	return serveWorker(ctx, addr, l, start, 0, config.Job{})
}

func serveWorker(ctx context.Context, addr string, l Load, start func(), maxWaiting int, job config.Job) error {
	cfg := config.Default()
	cfg.Redis.Addrs = []string{addr}
	cfg.Limits = map[string]config.Limit{
		l.Limit.Name: {Rate: fmt.Sprintf("%d/%v", l.Limit.Permits, l.Limit.Interval), Guard: config.Duration(l.Guard)},
	}
	cfg.Pools = []config.Pool{{Name: "bench", Concurrency: l.Slots, MaxWaiting: maxWaiting, Queues: l.Queues}}
	job.Limits = []string{l.Limit.Name}
	cfg.Jobs = map[string]config.Job{taskType: job}
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
