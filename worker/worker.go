// Package worker runs jobs from asynq's queues and keeps them within the rate
// limits of its configuration.
//
// [New] makes a [Worker], which [Worker.Run] runs. A job's handler is called when all limits of
// the job have a permit for it. If the permits of a job are due soon, it waits in the worker,
// beside the slots in which handlers run. If they are due much later, it parks in Redis, which
// uses up no retry, and comes back when they are nearly due. If a handler learns from its API
// that it has to wait, it returns [RetryAfter].
package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// Worker has the jobs, limits and pools of one process. Register handlers with
// [Worker.HandleFunc], then call [Worker.Run], once.
type Worker struct {
	cfg       *config.Config
	opts      Options
	logger    *slog.Logger
	rdb       redis.UniversalClient
	owned     io.Closer // rdb, if this Worker made it
	throttle  *throttle.Client
	inspector *asynq.Inspector
	view      *jobview.View
	handlers  handlers
	plans     *plan.Jobs
	pools     []*pool
	ranOut    *redis.Script // see exhausted

	http   *httpJob
	tracer trace.Tracer

	draining atomic.Bool
	late     context.Context // ends when shutdown_timeout is nearly over
	giveUp   context.CancelFunc
}

// New returns a worker with a Redis client of its own. If the configuration is wrong, the error
// is a [*config.Error]. It makes no connection yet. A nil logger logs nothing.
func New(cfg *config.Config, logger *zap.Logger) (*Worker, error) {
	return NewWith(cfg, Options{Zap: orNone(logger)})
}

// NewWithClient returns a worker that shares rdb. The caller still has to close rdb. The redis
// section of cfg then only tells whether it is a cluster, and how many replicas to wait for.
// The connection pool of rdb should have twice the slots of all pools and some more, and never
// fewer than the slots: a permit that waits for a connection becomes too old to use.
func NewWithClient(cfg *config.Config, logger *zap.Logger, rdb redis.UniversalClient) (*Worker, error) {
	return NewWith(cfg, Options{Zap: orNone(logger), Redis: rdb})
}

func orNone(logger *zap.Logger) *zap.Logger {
	if logger == nil {
		return zap.NewNop()
	}
	return logger
}

// NewWith returns a worker with [Options]. If the configuration is wrong, the error is a
// [*config.Error]. It makes no connection yet.
func NewWith(cfg *config.Config, opts Options) (w *Worker, err error) {
	if cfg == nil {
		return nil, errors.New("worker: there is no configuration: begin with config.Default or config.Load")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	logger, err := opts.logger()
	if err != nil {
		return nil, err
	}
	plans, err := plan.New(cfg)
	if err != nil {
		return nil, err
	}
	var owned io.Closer
	rdb := opts.Redis
	if rdb == nil {
		rc := cfg.Redis
		rc.PoolSize = max(rc.PoolSize, connections(cfg))
		if rdb, err = rc.NewClient(); err != nil {
			return nil, err
		}
		owned = rdb
	}
	defer func() {
		if err != nil && owned != nil {
			err = errors.Join(err, owned.Close())
		}
	}()
	client, err := cfg.Redis.NewThrottle(rdb)
	if err != nil {
		return nil, err
	}
	pools := poolsOf(cfg)
	w = &Worker{
		cfg:       cfg,
		opts:      opts,
		logger:    logger,
		rdb:       rdb,
		owned:     owned,
		throttle:  client,
		inspector: asynq.NewInspectorFromRedisClient(rdb),
		view:      jobview.New(rdb, client, plans, func() []jobview.Pool { return pools }),
		handlers:  handlers{own: asynq.NewServeMux(), http: asynq.NewServeMux(), other: opts.Handler},
		plans:     plans,
		ranOut:    redis.NewScript(ranOutLua),
		tracer:    newTracer(),
	}
	if w.http, err = newHTTPJob(cfg, plans.Fields(), client.ID()); err != nil {
		return nil, err
	}
	w.handlers.handle(HTTPTaskType, w.http)
	w.late, w.giveUp = context.WithCancel(context.Background())
	w.pools, err = newPools(w)
	return w, err
}

// connections is how many connections the slots, and what runs beside them, may use at a time.
func connections(cfg *config.Config) int {
	n := 16
	for _, p := range cfg.Pools {
		n += 2 * p.Concurrency // jobs that wait ask together
	}
	return n
}

// HandleFunc registers the handler of a task type, or of all types that begin with pattern and
// have no longer pattern. Like asynq's, it panics if the pattern is empty or already has a
// handler.
func (w *Worker) HandleFunc(pattern string, handler func(context.Context, *asynq.Task) error) {
	w.Handle(pattern, asynq.HandlerFunc(handler))
}

// Handle is [Worker.HandleFunc] for an [asynq.Handler].
func (w *Worker) Handle(pattern string, handler asynq.Handler) {
	w.handlers.handle(pattern, handler)
}

// Use wraps all handlers. Middleware runs when a job has its permits, unless the handler
// acquires them itself, like that of http:request.
func (w *Worker) Use(middleware ...asynq.MiddlewareFunc) { w.handlers.use(middleware) }

// ID is this worker's key in per_client limits.
func (w *Worker) ID() string { return w.throttle.ID() }

// Client is the client of the limiters that this worker's jobs share: for metrics, and for
// handlers that acquire more than their job's limits.
func (w *Worker) Client() *throttle.Client { return w.throttle }

// Summary says in a few lines which limits apply to which jobs.
func (w *Worker) Summary() []string {
	var lines []string
	for _, pc := range w.cfg.Pools {
		waiting, _ := w.cfg.Waiting(pc)
		var queues []string
		for _, name := range sortedKeys(pc.QueueWeights()) {
			queues = append(queues, fmt.Sprintf("%s %d", name, pc.QueueWeights()[name]))
		}
		lines = append(lines, fmt.Sprintf("pool %s: %d slots, %d may wait; queues %s", pc.Name, pc.Concurrency, waiting, strings.Join(queues, ", ")))
	}
	for _, j := range w.plans.All() {
		var limits []string
		for _, l := range j.Limits {
			limits = append(limits, l.String())
		}
		for _, l := range j.Slots {
			limits = append(limits, l.String())
		}
		line := fmt.Sprintf("job %s: no limit", j.Name)
		if len(limits) > 0 {
			line = fmt.Sprintf("job %s: %s", j.Name, strings.Join(limits, ", "))
		}
		if j.MaxInFlight > 0 {
			line += fmt.Sprintf("; %d in flight", j.MaxInFlight)
		}
		lines = append(lines, line)
	}
	return lines
}

// Run applies the limits of the configuration, and works until ctx ends. Then it drains: no job
// starts any more, waiting jobs go back without using up a retry, and running ones get the
// configuration's shutdown_timeout. Jobs that are not done by then go back to the head of their
// queue. It returns nil after that, or the reason why it could not start: a [*RightsError], for
// example, wrapped.
func (w *Worker) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.prepare(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop before it began
		}
		return err
	}
	pools, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(pools, func() {
		w.draining.Store(true)
		time.AfterFunc(time.Duration(w.cfg.ShutdownTimeout)*9/10, w.giveUp)
	})
	errs := make([]error, len(w.pools))
	var wg sync.WaitGroup
	for i, p := range w.pools {
		wg.Go(func() {
			if err := p.limits.Serve(pools, p.server, &w.handlers); err != nil {
				errs[i] = fmt.Errorf("pool %q: %w", p.name, err)
				stop()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// prepare checks the connection and its rights, and applies the limits.
func (w *Worker) prepare(ctx context.Context) error {
	if err := reach(ctx, w.cfg, w.rdb, func(e *RightsError) {
		w.logger.Warn("pages and commands do not show everything of this worker; its jobs run", "error", e)
	}); err != nil {
		return err
	}
	if err := w.pools[0].limits.Apply(ctx); err != nil {
		return advise(w.cfg, err)
	}
	return nil
}

func (w *Worker) close() error {
	w.giveUp()
	w.http.close()
	var err error
	for _, p := range w.pools {
		err = errors.Join(err, p.limits.Close())
	}
	err = errors.Join(err, w.throttle.Close())
	if w.owned != nil {
		err = errors.Join(err, w.owned.Close())
	}
	return err
}

// stopping reports whether the worker drains.
func (w *Worker) stopping() bool { return w.draining.Load() }
