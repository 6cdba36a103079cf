package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/drain"
	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
)

// Idle is the name of the scenario without any jobs.
const Idle = "idle"

// idleSettles is how long after its start a server is not watched yet: it connects, and applies its limits.
const idleSettles = time.Second

func (b Bench) idle() Scenario {
	s := Scenario{
		Name:  Idle,
		Title: fmt.Sprintf("Idle: a server with %d empty queues", drain.IdleQueues),
		Text: "What a server costs Redis while there are no jobs. asynq's default is to poll once a second while its queues are empty, and to look every 5 s " +
			"for jobs that are due. That would be too late for permits: jobthrottle polls each queue every 50 ms, and looks every second.",
		Base:    drain.NameIdle,
		Columns: []figures.Metric{figures.CallsPerSecond, figures.PartOfACore},
	}
	for _, way := range drain.IdleWays() {
		s.Runs = append(s.Runs, Run{way.Name, idleSettles + b.Size.Idle, func(ctx context.Context) (Result, error) {
			return b.watchIdle(ctx, way)
		}})
	}
	return s
}

func (b Bench) watchIdle(ctx context.Context, way drain.Way) (Result, error) {
	if err := b.Server.Flush(ctx); err != nil {
		return Result{}, fmt.Errorf("empty Redis: %w", err)
	}
	var before, after redisserver.Usage
	err := drain.Idle(ctx, b.Server.Addr, way, func() (err error) {
		if err := fleet.Sleep(ctx, idleSettles); err != nil {
			return err
		}
		if before, err = b.Server.Usage(ctx); err != nil {
			return err
		}
		if err := fleet.Sleep(ctx, b.Size.Idle); err != nil {
			return err
		}
		after, err = b.Server.Usage(ctx)
		return err
	})
	if err != nil {
		return Result{}, err
	}
	usage, seconds := after.Sub(before), b.Size.Idle.Seconds()
	return Result{Figures: figures.Figures{
		figures.CallsPerSecond: float64(usage.ScriptCalls) / seconds,
		figures.PartOfACore:    100 * usage.CPU.Seconds() / seconds,
	}}, nil
}
