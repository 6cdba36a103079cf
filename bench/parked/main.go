// Command parked measures the cost of parked jobs: the memory of Redis for each, beyond what
// asynq keeps for a job that it retries later with an equally long error; the cost of an idle
// fleet to Redis while they wait, beyond the same fleet with empty lines; and how late the jobs
// of very many lines start. It says of each figure whether it is as wanted. It starts a
// redis-server of its own.
//
//	go run ./bench/parked                  1,000,000 jobs; 100,000 lines
//	go run ./bench/parked --check          the same; exit status 1 if a figure is not as wanted
//	go run ./bench/parked --jobs 100000 --lines 10000
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
	"github.com/jobthrottle/jobthrottle/bench/internal/wanted"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/producer"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/worker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("parked", flag.ContinueOnError)
	jobs, lines := flags.Int("jobs", 1_000_000, "how many jobs park behind one limit; 0: none"), flags.Int("lines", 100_000, "how many lines have a job each; 0: none")
	check := flags.Bool("check", false, "exit with 1 if a figure is not as wanted")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	b := bench{server: server, rdb: redis.NewClient(&redis.Options{Addr: server.Addr}), missed: new(wanted.Missed)}
	defer b.rdb.Close()
	if *jobs > 0 {
		if err := b.backlog(ctx, *jobs); err != nil {
			return fmt.Errorf("%d jobs behind one limit: %w", *jobs, err)
		}
	}
	if *lines > 0 {
		if err := b.lines(ctx, *lines); err != nil {
			return fmt.Errorf("%d lines: %w", *lines, err)
		}
	}
	if *check {
		return b.missed.Err()
	}
	return nil
}

type bench struct {
	server *redisserver.Server
	rdb    *redis.Client
	missed *wanted.Missed
}

// What the figures may be at most: the memory of a parked job, in bytes, beyond what asynq keeps
// to retry a job; the cost of an idle fleet beside parked jobs beyond that of the same beside empty
// lines, in percent of a core; and how late a job of a line starts, in seconds.
const (
	wantedBytes = 256
	wantedIdle  = 0.3
	wantedLate  = 1
)

const (
	// workers is how many workers an idle fleet has, and watched is how long it is measured.
	workers = 10
	watched = 20 * time.Second
	queue   = "default"
	taskJob = "bench:job"
)

// configOf has one limit; if there is a key, each account has its own limit.
func (b bench) configOf(rate, key string, slots int) *config.Config {
	cfg := config.Default()
	cfg.Redis.Addrs = []string{b.server.Addr}
	cfg.Limits = map[string]config.Limit{"api": {Rate: rate, Key: key}}
	cfg.Jobs = map[string]config.Job{"bench:": {Limits: []string{"api"}, Hold: "0"}}
	cfg.Pools = []config.Pool{{Name: "bench", Concurrency: slots}}
	return cfg
}

// work runs workers until the returned function is called.
func (b bench) work(ctx context.Context, n int, cfg *config.Config, handle func(context.Context, *asynq.Task) error) (stop func() error, err error) {
	running, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		w, err := worker.New(cfg, zap.NewNop())
		if err != nil {
			cancel()
			wg.Wait()
			return nil, err
		}
		w.HandleFunc("bench:", handle)
		wg.Go(func() { errs[i] = w.Run(running) })
	}
	return func() error {
		cancel()
		wg.Wait()
		return errors.Join(errs...)
	}, nil
}

func (b bench) enqueue(ctx context.Context, jobs int, payload func(i int) []byte) error {
	s := producer.New(b.rdb).Stream(ctx, producer.StreamEvents{Done: func(producer.Result) {}, Outage: func(error) {}})
	for i := range jobs {
		if err := s.Add(i+1, producer.Job{Type: taskJob, Payload: payload(i)}); err != nil {
			return err
		}
	}
	return s.Close()
}

// await waits until that many jobs are in asynq's retry set, and none is pending or active.
func (b bench) await(ctx context.Context, retry int) error {
	inspector := asynq.NewInspectorFromRedisClient(b.rdb)
	for {
		q, err := inspector.GetQueueInfo(queue)
		if err != nil {
			return err
		}
		if q.Retry == retry && q.Pending+q.Active == 0 {
			return nil
		}
		if err := fleet.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// backlog measures jobs that are parked behind one limit.
func (b bench) backlog(ctx context.Context, jobs int) error {
	payload := func(i int) []byte { return fmt.Appendf(nil, `{"id":%d}`, i) }
	fmt.Fprintf(os.Stderr, "asynq puts %d jobs off by itself\n", jobs)
	alone, err := b.retriedByAsynq(ctx, jobs, payload)
	if err != nil {
		return err
	}
	if err := b.server.Flush(ctx); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d workers with empty lines, for %v; then %d jobs park; then the workers beside them\n", workers, watched, jobs)
	cfg := b.configOf("1/1000h", "", 50)
	empty, err := b.idle(ctx, cfg)
	if err != nil {
		return err
	}
	if err := b.server.Flush(ctx); err != nil {
		return err
	}
	if err := b.enqueue(ctx, jobs+1, payload); err != nil { // one runs
		return err
	}
	began := time.Now()
	stop, err := b.work(ctx, 2, cfg, func(context.Context, *asynq.Task) error { return nil })
	if err != nil {
		return err
	}
	err = b.await(ctx, jobs)
	took := time.Since(began)
	if err = errors.Join(err, stop()); err != nil {
		return err
	}
	parked, err := b.server.Memory(ctx)
	if err != nil {
		return err
	}
	waiting, err := b.idle(ctx, cfg)
	if err != nil {
		return err
	}
	row, beyond := fmt.Sprintf("%d parked", jobs), float64(parked.Used-alone.Used)/float64(jobs)
	fmt.Printf("%s at %.0f/s: %.0f bytes each, %.0f beyond what asynq keeps to retry a job; wanted: %s\n", row, float64(jobs)/took.Seconds(),
		float64(parked.Used)/float64(jobs), beyond, b.missed.AtMost(row, "bytes", beyond, wantedBytes))
	fmt.Printf("an idle fleet of %d workers beside them: %.2f %% of a core of Redis, %.2f %% with empty lines: %.2f %% more; wanted: %s\n",
		workers, waiting, empty, waiting-empty, b.missed.AtMost("an idle fleet beside "+row, "%", waiting-empty, wantedIdle))
	return nil
}

// retriedByAsynq is Redis's memory after plain asynq has put off that many jobs.
func (b bench) retriedByAsynq(ctx context.Context, jobs int, payload func(i int) []byte) (m redisserver.Memory, err error) {
	if err := b.enqueue(ctx, jobs, payload); err != nil {
		return m, err
	}
	putOff := errors.New(`throttled by limiter "api", next try in about 1000h0m0s`)
	srv := asynq.NewServerFromRedisClient(b.rdb, asynq.Config{
		Concurrency: 50, LogLevel: asynq.FatalLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return 24 * time.Hour },
		IsFailure:      func(error) bool { return false },
	})
	if err := srv.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return putOff })); err != nil {
		return m, err
	}
	err = b.await(ctx, jobs)
	srv.Shutdown()
	if err != nil {
		return m, err
	}
	return b.server.Memory(ctx)
}

// idle is how much of a core Redis uses for a fleet that has nothing to do, in percent.
func (b bench) idle(ctx context.Context, cfg *config.Config) (percent float64, err error) {
	stop, err := b.work(ctx, workers, cfg, func(context.Context, *asynq.Task) error { return nil })
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := fleet.Sleep(ctx, 3*time.Second); err != nil { // until they have started
		return 0, err
	}
	before, err := b.server.Usage(ctx)
	if err != nil {
		return 0, err
	}
	if err := fleet.Sleep(ctx, watched); err != nil {
		return 0, err
	}
	after, err := b.server.Usage(ctx)
	if err != nil {
		return 0, err
	}
	return 100 * after.Sub(before).CPU.Seconds() / watched.Seconds(), nil
}

// lines measures how late jobs start that have a line each. Each account gets the permit for
// its first job at its own time within a minute. Its second job waits for the next permit.
func (b bench) lines(ctx context.Context, accounts int) error {
	if err := b.server.Flush(ctx); err != nil {
		return err
	}
	const interval = time.Minute
	var mu sync.Mutex
	starts := make(map[string]time.Time, accounts)
	late := make([]time.Duration, 0, accounts)
	done := make(chan struct{})
	guard := throttle.Rate{Permits: 1, Interval: interval}.DefaultGuard()
	handle := func(_ context.Context, task *asynq.Task) error {
		now, account := time.Now(), string(task.Payload())
		mu.Lock()
		defer mu.Unlock()
		if first, ok := starts[account]; !ok {
			starts[account] = now
		} else if late = append(late, now.Sub(first)-interval-guard); len(late) == accounts {
			close(done)
		}
		return nil
	}
	stop, err := b.work(ctx, 4, b.configOf("1/1m", "payload.account", 100), handle)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "two jobs of each of %d accounts, enqueued over %v; the second of each starts %v after the first\n", accounts, interval, interval+guard)
	payload := func(i int) []byte { return fmt.Appendf(nil, `{"account":"a%d"}`, i/2) }
	perTick, sent := max(2*accounts/int(interval/(100*time.Millisecond)), 2)/2*2, 0
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for sent < 2*accounts {
		n := min(perTick, 2*accounts-sent)
		from := sent
		if err := b.enqueue(ctx, n, func(i int) []byte { return payload(from + i) }); err != nil {
			return errors.Join(err, stop())
		}
		sent += n
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), stop())
		case <-ticker.C:
		}
	}
	select {
	case <-ctx.Done():
	case <-done:
	case <-time.After(3 * interval):
		err = errors.New("not all jobs have started within three intervals")
	}
	if err = errors.Join(err, ctx.Err(), stop()); err != nil {
		return err
	}
	report(late, b.missed)
	return nil
}
