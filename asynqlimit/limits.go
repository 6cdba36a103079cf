package asynqlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// Options are the options of [Limits]. The zero value is ready for use.
type Options struct {
	// Logger gets what an operator has to know, and each attempt at level debug. Defaults to
	// slog.Default().
	Logger *slog.Logger
	// Name is what metrics and the page call the server, as a pool. Defaults to the name of the
	// configuration's first pool, with a number if there are several servers. If the configuration
	// has a pool of this name, its settings are the server's defaults, else those of the first pool.
	Name string
	// Concurrency is how many handlers run at a time if the server's own configuration does not
	// say it. Defaults to that of the pool of the configuration.
	Concurrency int
	// MaxWaiting is how many jobs may wait in this process, beside those that run. If more have
	// to wait, they park. Defaults to that of the pool of the configuration. See
	// [config.Config.Waiting] if that has none.
	MaxWaiting int
	// HandlersAcquire are patterns of the server's mux whose handlers always call Acquire
	// themselves, immediately before they use the permits.
	HandlersAcquire []string
	// Asks, if there is one, reports whether the handler of a task, which is registered for one of HandlersAcquire, gets as
	// far as to call Acquire: whether it finds nothing wrong with the task. Such a task queues behind others without its
	// handler being called for that. Asks may be called for any task that waits in a queue, again and again, on any goroutine.
	Asks func(*asynq.Task) bool
	// HandlerPatterns returns the patterns for which the server's handlers were registered, which
	// a mux does not say. The page and throttle explain use them to say that nobody has a handler
	// for a type. Without it they can say so only about types in the configuration. Serve logs names
	// under jobs that end in ":" or "*" if no handler is for any of their types.
	HandlerPatterns func() []string
	// Attempt, if there is one, wraps each attempt of a job, together with its wait in this
	// process. It calls the handler once at most, and returns after it. The middleware of the
	// server's mux runs only when a job has its permits.
	Attempt asynq.MiddlewareFunc
	// Throttle is the view of the limiters to use, for processes that have one already. The
	// caller still closes it.
	Throttle *throttle.Client
	// Trace, if there is one, is called when a job begins to wait for permits of limiters. The
	// function that it returns is called when that wait ends, on a goroutine of its own: permits
	// are good for a short time only. The attempt ends after it, so it must not wait for the
	// attempt. If it panics, that is logged.
	Trace func(ctx context.Context, limiters []string, permits int64) (end func(error))
}

// Limits are the limits of a configuration, for one [asynq.Server]: give the server
// [Limits.Redis] and what [Limits.Configure] returns, and call [Limits.Serve] in place of the
// server's Run. See the package's documentation for what becomes of jobs then.
type Limits struct {
	*process
	opts     Options
	gate     *gate
	intake   *intake
	rooms    rooms
	attempts *attempts
	endings  endings
	orders   *orders
	caller   *caller
	name     string                       // of the server, among those of this process
	pool     atomic.Pointer[jobview.Pool] // as it is shown, except its name
	weights  map[string]int               // of the queues
	timeout  time.Duration                // of the shutdown
	lacks    []string                     // types of the configuration without a handler
	handlers mux                          // nil: it cannot be known which types have a handler

	serving    atomic.Bool
	takes      atomic.Bool
	pings      atomic.Bool // Serve makes its server ping
	reached    atomic.Bool // the server has our client
	unknown    sync.Once
	foreign    sync.Once       // asynq asks for a queue that it was not given
	forgotten  sync.Once       // asynq asks for tasks, and Serve was not called
	second     sync.Once       // a server asks for tasks that is not, or may not be, the one that Serve runs
	configured atomic.Bool     // Configure was called
	served     atomic.Bool     // Serve was called
	draining   context.Context // ends when the waits in this process have to end
	drain      context.CancelFunc
	late       context.Context // ends when the shutdown is nearly over
	lateAt     atomic.Int64    // when that will be, in Unix time in ns; 0: the process does not drain
	giveUp     context.CancelFunc
	closed     sync.Once
}

// process is what the servers of one process share.
type process struct {
	cfg       *config.Config
	rdb       redis.UniversalClient
	lines     *line.Lines
	throttle  *throttle.Client
	owned     bool // throttle is ours to close
	rules     *rules
	others    jobCounts // for types that no rule matches
	applied   *recent   // limiters of keys whose rate this process has applied
	reports   reports
	events    events
	dryRuns   dryRuns
	logger    *slog.Logger
	users     atomic.Int64
	servers   servers
	page      page
	warned    sync.Once     // what may be wrong with the configuration is logged
	unserved  firsts        // names of the configuration without a handler: they are logged
	unmatched firsts        // types that no pattern matches: they are logged
	watches   chan struct{} // has one in it while a server of the process logs changes of limits
	here      *present
	tally     tally // of all jobs
	started   time.Time
}

// New returns the limits of a configuration, for the jobs in rdb. The caller still closes rdb.
// The error for a wrong configuration is a [*config.Error]. New makes no Redis call. It reads
// limits, jobs and redis.wait_replicas of the configuration. From the pool named by Options.Name, or
// else the first, it takes what the server's own configuration does not say.
func New(rdb redis.UniversalClient, cfg *config.Config, opts Options) (*Limits, error) {
	if rdb == nil || cfg == nil {
		return nil, errors.New("asynqlimit: New needs a Redis client and a configuration")
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if _, ok := rdb.(*redis.ClusterClient); ok {
		if err := cfg.ValidateCluster(); err != nil {
			return nil, err
		}
	}
	rules, err := newRules(cfg)
	if err != nil {
		return nil, err
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	p := &process{cfg: cfg, rdb: rdb, lines: line.New(rdb), throttle: opts.Throttle, rules: rules, applied: newRecent(maxRecent), logger: opts.Logger, watches: make(chan struct{}, 1), started: time.Now()}
	if p.throttle == nil {
		if p.throttle, err = cfg.Redis.NewThrottle(rdb); err != nil {
			return nil, err
		}
		p.owned = true
	}
	p.dryRuns.p = p
	p.page = newPage(p)
	p.here = newPresent(p)
	return p.server(opts), nil
}

// Another returns the limits for another server of the same process, which serves other queues.
// The servers share what is counted for each process: PER_CLIENT limits and max_in_flight.
func (l *Limits) Another(opts Options) *Limits {
	opts.Throttle = l.throttle
	return l.process.server(opts)
}

func (p *process) server(opts Options) *Limits {
	p.users.Add(1)
	l := &Limits{process: p, opts: opts, attempts: newAttempts(), orders: newOrders()}
	l.draining, l.drain = context.WithCancel(context.Background())
	l.late, l.giveUp = context.WithCancel(context.Background())
	l.configure(asynq.Config{})
	p.servers.add(l, cmp.Or(opts.Name, p.cfg.Pools[0].Name))
	return l
}

// Redis returns the client to make the server with. It is the caller's own client, and sees the
// scripts with which asynq moves tasks. Only the server that Serve runs gets tasks through it.
func (l *Limits) Redis() redis.UniversalClient { return client{l.rdb, l, &owner{}} }

// Throttle is the view of the limiters that the jobs share: for metrics, and for handlers that
// acquire more than their job's limits.
func (l *Limits) Throttle() *throttle.Client { return l.throttle }

// Configure returns the configuration to make the server with. It is the caller's, except that
// the first pool of the configuration gives Concurrency and Queues where they are zero, and that
// empty queues are polled every 50ms where TaskCheckInterval is zero. The server takes more tasks
// than its Concurrency, as many more as may wait; only as many handlers as the caller asked for
// run at a time.
//
// The caller's ErrorHandler sees real failures only. IsFailure and RetryDelayFunc may also be asked
// about a task that asynq ends while it waits: it was cancelled, or its lease is over. What they
// answer does not count then.
//
// The last call before Serve counts. Later ones return the configuration as it is.
func (l *Limits) Configure(cfg asynq.Config) asynq.Config {
	if l.served.Load() {
		return cfg // it is for a second server, which gets no jobs
	}
	l.configured.Store(true)
	size := l.configure(cfg)
	cfg.Concurrency = size.slots + size.room
	cfg.Queues = maps.Clone(l.weights)
	cfg.TaskCheckInterval = time.Millisecond // the gate rests instead of asynq
	if size.strict {
		cfg.StrictPriority = true
	}
	isFailure, delay, handler := cfg.IsFailure, cfg.RetryDelayFunc, cfg.ErrorHandler
	cfg.IsFailure = func(err error) bool {
		return !isPutOff(err) && (isFailure == nil && err != nil || isFailure != nil && isFailure(err))
	}
	cfg.RetryDelayFunc = func(n int, err error, task *asynq.Task) time.Duration {
		if isPutOff(err) {
			return 0
		}
		if delay == nil {
			return asynq.DefaultRetryDelayFunc(n, err, task)
		}
		return delay(n, err, task)
	}
	cfg.ErrorHandler = asynq.ErrorHandlerFunc(func(ctx context.Context, task *asynq.Task, err error) {
		if isPutOff(err) || errors.Is(err, errGone) || l.goesOnWaiting(ctx) {
			return
		}
		if handler != nil {
			handler.HandleError(ctx, task, err)
		}
	})
	cfg.Logger = asynqLogger{l, cfg.Logger}
	return cfg
}

// taskCheckInterval is the time between two polls of empty queues. With asynq's default of a
// second, tasks that others have called would come late. A shorter time would cost Redis more
// than the tasks gain.
const taskCheckInterval = 50 * time.Millisecond

func (l *Limits) configure(cfg asynq.Config) gateSize {
	pool := l.cfg.Pools[max(slices.IndexFunc(l.cfg.Pools, func(p config.Pool) bool { return p.Name == l.opts.Name }), 0)]
	size := gateSize{slots: cfg.Concurrency, weights: map[string]int{}, strict: cfg.StrictPriority, every: cfg.TaskCheckInterval}
	if size.every <= 0 {
		size.every = taskCheckInterval
	}
	if size.slots < 1 {
		size.slots = l.opts.Concurrency
	}
	if size.slots < 1 {
		size.slots = pool.Concurrency
	}
	if size.slots < 1 {
		size.slots = runtime.NumCPU()
	}
	size.room, size.notCalled = l.cfg.Waiting(config.Pool{Concurrency: size.slots, MaxWaiting: cmp.Or(l.opts.MaxWaiting, pool.MaxWaiting)})
	for queue, weight := range cfg.Queues {
		if weight > 0 {
			size.weights[queue] = weight
		}
	}
	if len(size.weights) == 0 {
		size.weights, size.strict = maps.Clone(pool.QueueWeights()), size.strict || pool.Strict
	}
	if l.timeout = cfg.ShutdownTimeout; l.timeout == 0 {
		l.timeout = 8 * time.Second // asynq's own
	}
	l.weights = size.weights
	l.pool.Store(&jobview.Pool{Slots: size.slots, MaxWaiting: size.room, Weights: size.weights})
	l.gate = newGate(size)
	l.rooms = newRooms(l.lines, size.weights, l.logger)
	l.intake = &intake{l: l, id: uuid.NewString(), most: 1, sorts: map[string]int{}, few: map[string]int{}, takes: map[string]*taking{}}
	l.caller = newCaller(l, slices.Sorted(maps.Keys(size.weights)))
	return size
}

// weightOf returns the weight of a queue in the lines.
func (l *Limits) weightOf(queue string) int64 {
	if l.gate.size.strict {
		return strictWeight(l.weights, queue)
	}
	return int64(max(l.weights[queue], 1))
}

// strictWeight returns the weight of a queue in the lines of a strict server. It is 1,000 times that of the queues just
// below, so a queue gets about one permit in 1,000 while queues above it have tasks in line. With more than five different
// weights the factor is smaller, because the tags of shares notice permits of queues whose weight is up to 1e12.
func strictWeight(weights map[string]int, queue string) int64 {
	const highest = 1e12
	ranks := slices.Compact(slices.Sorted(maps.Values(weights)))
	factor := 1000.0
	if steps := len(ranks) - 1; steps > 4 {
		factor = math.Pow(highest, 1/float64(steps))
	}
	return int64(math.Round(math.Pow(factor, float64(max(slices.Index(ranks, weights[queue]), 0)))))
}

// whileRunning returns a context that also ends when the process drains.
func (l *Limits) whileRunning(ctx context.Context) (context.Context, context.CancelFunc) {
	return until(ctx, l.draining)
}

// left is how long it is until the shutdown is nearly over; forever if the process does not drain.
func (l *Limits) left() time.Duration {
	if at := l.lateAt.Load(); at != 0 {
		return max(time.Until(time.Unix(0, at)), 0)
	}
	return holdForever
}

// until returns a context that ends when either of two does.
func until(ctx, end context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	unregister := context.AfterFunc(end, cancel)
	return ctx, func() { unregister(); cancel() }
}

// Close ends what Serve has not ended. It is only needed for Limits that were never served.
func (l *Limits) Close() (err error) {
	l.closed.Do(func() {
		l.drain()
		l.giveUp()
		l.servers.remove(l)
		l.events.forget(l)
		l.here.again()
		if l.users.Add(-1) > 0 {
			return
		}
		l.dryRuns.close()
		if l.owned {
			if err = l.throttle.Close(); err != nil {
				err = fmt.Errorf("asynqlimit: %w", err)
			}
		}
	})
	return err
}
