package scenario

import (
	"context"
	"fmt"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/drain"
	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
)

// Drain is the name of the scenario with asynq tasks.
const Drain = "drain"

// drainGuard is the default guard of a limit per second.
const drainGuard = 10 * time.Millisecond

func (b Bench) drain() Scenario {
	l := drain.Load{
		Limit:    fleet.Limit{Name: Drain, Permits: 40, Interval: time.Second},
		Tasks:    b.Size.Tasks,
		Servers:  2,
		Slots:    20,
		Patience: b.Size.Patience,
	}
	ideal := time.Duration(int64(l.Tasks)/l.Limit.Permits-1) * (l.Limit.Interval + drainGuard)
	s := Scenario{
		Name:  Drain,
		Title: fmt.Sprintf("Drain: %d asynq tasks at 40/s, 2 servers x 20 slots", l.Tasks),
		Text: fmt.Sprintf("From the first start of a task to the last; the ideal is %v: (%d/40 - 1) x (interval + guard). "+
			"asynq's wiki recipe returns an error with a time to retry at; its limiter here is redis_rate, which two servers can share, "+
			"and the time is what redis_rate says. asynq looks for what is to be retried every 5 s; jobthrottle has it look every second, "+
			"and at empty queues every 50 ms. What asynq itself calls, to connect included, is part of the calls per task.", ideal, l.Tasks),
		Base: drain.NameWaiting,
		Columns: []figures.Metric{
			figures.Seconds, figures.OfIdeal, figures.Busiest, figures.LateP50, figures.LateP99, figures.CallsPerTask, figures.CPUPerTask,
		},
	}
	for _, way := range drain.Ways() {
		length := ideal + 2*time.Second
		if way.Name == drain.NameWiki {
			length *= 4 // asynq checks every five seconds for tasks to retry
		}
		s.Runs = append(s.Runs, Run{way.Name, length, func(ctx context.Context) (Result, error) {
			return b.drainOnce(ctx, way, l, ideal)
		}})
	}
	return s
}

func (b Bench) drainOnce(ctx context.Context, way drain.Way, l drain.Load, ideal time.Duration) (Result, error) {
	var starts []fleet.Use
	usage, err := b.use(ctx, func() error { return nil }, func() (err error) {
		starts, err = drain.Run(ctx, b.Server.Addr, l, way)
		return err
	})
	if err != nil {
		return Result{}, err
	}
	if len(starts) == 0 {
		return Result{}, fmt.Errorf("no task started in %v", l.Patience)
	}
	f := figures.Figures{
		figures.Busiest:      float64(fleet.Busiest(starts, l.Limit.Interval)),
		figures.CallsPerTask: float64(usage.ScriptCalls) / float64(len(starts)),
		figures.CPUPerTask:   microseconds(usage.CPU) / float64(len(starts)),
	}
	took := starts[len(starts)-1].At - starts[0].At
	if len(starts) < l.Tasks {
		took = l.Patience // or more: some never started
	}
	f[figures.Seconds] = took.Seconds()
	if way.Name == drain.NameAlone {
		return Result{Figures: f}, nil // it has no limit, so nothing can be late
	}
	late := fleet.Lateness(starts, []fleet.Limit{l.Limit})
	f[figures.OfIdeal] = took.Seconds() / ideal.Seconds()
	f[figures.LateP50] = milliseconds(fleet.Percentile(late, 50))
	f[figures.LateP99] = milliseconds(fleet.Percentile(late, 99))
	return Result{Figures: f}, nil
}
