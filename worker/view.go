package worker

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// What a worker shows of its jobs and limits. Package internal/jobview reads it,
// for any asynq server.
type (
	// Overview is how the limits and queues of a worker's configuration stand at
	// one time, over the whole fleet.
	Overview = jobview.Overview
	// LimitOverview is a limit of the configuration.
	LimitOverview = jobview.LimitOverview
	// LimiterOverview is a limiter in Redis.
	LimiterOverview = jobview.LimiterOverview
	// PoolOverview is a pool of the configuration.
	PoolOverview = jobview.PoolOverview
	// QueueOverview is what asynq says of a queue, except that it counts parked
	// tasks as tasks to retry, and here they are told apart.
	QueueOverview = jobview.QueueOverview

	// Inspector reads which tasks wait for which limit, for the whole fleet.
	Inspector = jobview.Inspector
	// Line is how many tasks are parked for a limiter.
	Line = jobview.Line
	// ParkedTask is a task in line for a limiter.
	ParkedTask = jobview.ParkedTask
	// Explanation is where a task stands, and what holds it.
	Explanation = jobview.Explanation
	// HoldingLimiter is the limiter that holds a task, and how it stands.
	HoldingLimiter = jobview.HoldingLimiter
	// AmbiguousTaskError says that several queues have a task of that id.
	AmbiguousTaskError = jobview.AmbiguousTaskError
)

// StateParked is the state of a task that is in line for a limiter. asynq has it
// in its retry set, although it did not fail. The other states are asynq's own:
// asynq.TaskState.String.
const StateParked = jobview.StateParked

// ErrUnknownLimit is what Limiter returns for names that the configuration does not know.
var ErrUnknownLimit = jobview.ErrUnknownLimit

// NewInspector returns an Inspector of what is in rdb, which remains the
// caller's to close.
func NewInspector(rdb redis.UniversalClient) *Inspector { return jobview.NewInspector(rdb) }

// Overview reads how the limits and queues of this worker's configuration
// stand. It changes nothing. It costs a script call a limit and client, and
// some calls a queue: call it once a second at most.
func (w *Worker) Overview(ctx context.Context) (Overview, error) { return w.view.Overview(ctx) }

// Fleet reads and pins limiters, in this worker's Redis.
func (w *Worker) Fleet() *operate.Fleet { return w.view.Fleet() }

// Inspector reads which tasks wait for which limit, in this worker's Redis.
func (w *Worker) Inspector() *Inspector { return w.view.Inspector() }

// Limiter returns the limiter of a limit of the configuration, for operators
// to change or pause, and its configured rate. Of a keyed limit the name is
// that of one limiter, "limit:value", with % and : of the value written %25 and
// %3A. A name that no limiter can have is an error; one that the configuration
// does not know is ErrUnknownLimit.
func (w *Worker) Limiter(name string) (*throttle.Limiter, throttle.Rate, error) {
	return w.view.Limiter(name)
}

// JobsOfValue lists jobs as Inspector().Jobs does, of those that wait for a limiter of
// this value, whichever limit with a key it belongs to.
func (w *Worker) JobsOfValue(ctx context.Context, q jobview.JobQuery, value string) (jobview.JobPage, error) {
	return w.view.JobsOfValue(ctx, q, value)
}

// poolsOf are the pools of a configuration.
func poolsOf(cfg *config.Config) []jobview.Pool {
	pools := make([]jobview.Pool, len(cfg.Pools))
	for i, pc := range cfg.Pools {
		pools[i] = jobview.Pool{Name: pc.Name, Slots: pc.Concurrency, MaxWaiting: pc.WaitingSlots(), Weights: pc.QueueWeights()}
	}
	return pools
}
