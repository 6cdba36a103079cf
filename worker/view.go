package worker

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// Types that show a worker's jobs and limits. Package internal/jobview reads them, for any
// asynq server:
//
//	go doc github.com/jobthrottle/jobthrottle/internal/jobview.Overview
//
// prints the fields and methods of the first, and so on.
type (
	// Overview is the state of the limits and queues of a worker's configuration at one time,
	// over the whole fleet.
	Overview = jobview.Overview
	// LimitOverview is a limit of the configuration.
	LimitOverview = jobview.LimitOverview
	// LimiterOverview is a limiter in Redis.
	LimiterOverview = jobview.LimiterOverview
	// PoolOverview is a pool of the configuration.
	PoolOverview = jobview.PoolOverview
	// QueueOverview is what asynq says about a queue. But asynq counts parked tasks as tasks to
	// retry, and here they are counted separately.
	QueueOverview = jobview.QueueOverview

	// Inspector reads which tasks wait for which limit, for the whole fleet.
	Inspector = jobview.Inspector
	// Line is how many tasks are parked for a limiter.
	Line = jobview.Line
	// ParkedTask is a task in line for a limiter.
	ParkedTask = jobview.ParkedTask
	// Explanation is the state of a task, and what holds it.
	Explanation = jobview.Explanation
	// HoldingLimiter is the limiter that holds a task, and its usage.
	HoldingLimiter = jobview.HoldingLimiter
	// AmbiguousTaskError says that several queues have a task with that id.
	AmbiguousTaskError = jobview.AmbiguousTaskError
)

// StateParked is the state of a task that is in line for permits or for a slot. asynq has it
// in its retry set, although it did not fail. The other states are asynq's own:
// asynq.TaskState.String.
const StateParked = jobview.StateParked

// ErrUnknownLimit is the error of [Worker.Limiter] for names that the configuration does not
// have.
var ErrUnknownLimit = jobview.ErrUnknownLimit

// NewInspector returns an [Inspector] of what is in rdb. The caller still has to close rdb.
func NewInspector(rdb redis.UniversalClient) *Inspector { return jobview.NewInspector(rdb) }

// Overview reads the state of the limits and queues of this worker's configuration. It changes
// nothing. It costs a script call for each limit and client, and some calls for each queue:
// call it at most once a second.
func (w *Worker) Overview(ctx context.Context) (Overview, error) { return w.view.Overview(ctx) }

// Fleet reads and pins limiters, in this worker's Redis.
func (w *Worker) Fleet() *operate.Fleet { return w.view.Fleet() }

// Inspector reads which tasks wait for which limit, in this worker's Redis.
func (w *Worker) Inspector() *Inspector { return w.view.Inspector() }

// Limiter returns the limiter of a limit of the configuration, for operators to change or pause,
// and its configured rate. For a keyed limit the name is that of one limiter, "limit:value", with
// % and : of the value written %25 and %3A. The error is [ErrUnknownLimit] if the configuration
// does not have the limit, and another error if no limiter can have that name.
func (w *Worker) Limiter(name string) (*throttle.Limiter, throttle.Rate, error) {
	return w.view.Limiter(name)
}

// OtherQueues returns the queues that this worker does not serve.
func (w *Worker) OtherQueues(ctx context.Context) (jobview.OtherQueues, error) {
	return w.view.OtherQueues(ctx)
}

// JobsOfLimit lists jobs as Inspector().Jobs does. Failed and archived ones wait for no limit: it lists those that have the
// Limit of the query by the worker's configuration.
func (w *Worker) JobsOfLimit(ctx context.Context, q jobview.JobQuery) (jobview.JobPage, error) {
	return w.view.JobsOfLimit(ctx, q)
}

// JobsOfValue lists jobs as Inspector().Jobs does, but only those of this value, whichever
// limit with a key it belongs to.
func (w *Worker) JobsOfValue(ctx context.Context, q jobview.JobQuery, value string) (jobview.JobPage, error) {
	return w.view.JobsOfValue(ctx, q, value)
}

// poolsOf are the pools of a configuration.
func poolsOf(cfg *config.Config) []jobview.Pool {
	pools := make([]jobview.Pool, len(cfg.Pools))
	for i, pc := range cfg.Pools {
		waiting, _ := cfg.Waiting(pc)
		pools[i] = jobview.Pool{Name: pc.Name, Slots: pc.Concurrency, MaxWaiting: waiting, Weights: pc.QueueWeights()}
	}
	return pools
}
