package asynqlimit_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
	"github.com/jobthrottle/jobthrottle/throttle"
)

func TestMain(m *testing.M) {
	testkit.WaitMostly()
	goleak.VerifyTestMain(m)
}

// site is a Redis, what is enqueued there, and what the servers' handlers saw.
type site struct {
	t         testing.TB
	rdb       *redis.Client
	client    *asynq.Client
	inspector *asynq.Inspector

	mu       sync.Mutex
	starts   []start
	failures []error // that ErrorHandlers saw
	more     chan struct{}
}

type start struct {
	id, typ, server string
	at              time.Time
}

// parksBy reports whether a script with these keys parks tasks.
func parksBy(keys []string) bool {
	return len(keys) == 4 && strings.HasSuffix(keys[2], ":retry") && strings.HasSuffix(keys[3], ":jt:room")
}

// parked returns how many tasks a command parks.
func parked(cmd redis.Cmder) int {
	args := cmd.Args()
	if !strings.HasPrefix(cmd.Name(), "eval") || len(args) < 7 {
		return 0
	}
	keys := make([]string, 4)
	for i := range keys {
		keys[i] = fmt.Sprint(args[3+i])
	}
	if fmt.Sprint(args[2]) != "4" || !parksBy(keys) {
		return 0
	}
	return (len(args) - 10) / 9 // the arguments for all tasks, and those for each
}

// nightly reports whether tests run at full size.
func nightly() bool { return os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" }

// onBoth runs a test on a real Redis, and on miniredis.
func onBoth(t *testing.T, test func(*site)) {
	t.Run("redis", func(t *testing.T) { t.Parallel(); test(newSite(t, redistest.Start(t))) })
	t.Run("miniredis", func(t *testing.T) { t.Parallel(); test(newSite(t, miniredis.RunT(t).Addr())) })
}

// onEach is onBoth for a test that watches when jobs start: one after the other, because two at a time
// keep each other from the processor for longer than a permit is good for.
func onEach(t *testing.T, test func(*site)) {
	t.Run("redis", func(t *testing.T) { test(newSite(t, redistest.Start(t))) })
	t.Run("miniredis", func(t *testing.T) { test(newSite(t, miniredis.RunT(t).Addr())) })
}

func newSite(t testing.TB, addr string) *site {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 100})
	t.Cleanup(func() { rdb.Close() })
	return &site{t: t, rdb: rdb, client: asynq.NewClientFromRedisClient(rdb), inspector: asynq.NewInspectorFromRedisClient(rdb), more: make(chan struct{}, 1)}
}

// member is a server of the site.
type member struct {
	name   string
	yaml   string
	asynq  asynq.Config
	opts   asynqlimit.Options
	handle func(context.Context, *asynq.Task) error
	mux    *asynq.ServeMux          // nil: one that handles x and y
	rdb    redis.UniversalClient    // nil: that of the site
	made   func(*asynqlimit.Limits) // called before it serves
}

// serve runs a server until the returned function is called, or the test ends.
func (s *site) serve(m member) (stop func()) {
	s.t.Helper()
	cfg, err := config.Parse("config.yaml", []byte(m.yaml))
	if err != nil {
		s.t.Fatal(err)
	}
	if m.opts.Logger == nil {
		m.opts.Logger = slog.New(slog.NewTextHandler(testWriter{s.t}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	if m.rdb == nil {
		m.rdb = s.rdb
	}
	limits, err := asynqlimit.New(m.rdb, cfg, m.opts)
	if err != nil {
		s.t.Fatal(err)
	}
	if m.asynq.Concurrency == 0 {
		m.asynq.Concurrency = 10
	}
	m.asynq.LogLevel = asynq.WarnLevel
	if m.asynq.ErrorHandler == nil {
		m.asynq.ErrorHandler = asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.failures = append(s.failures, err)
		})
	}
	if m.mux == nil {
		m.mux = asynq.NewServeMux()
		for _, pattern := range []string{"x", "y"} {
			m.mux.HandleFunc(pattern, s.handler(m))
		}
	}
	if m.made != nil {
		m.made(limits)
	}
	return s.serveWith(limits, asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(m.asynq)), m.mux)
}

// serveWith runs a server that was made with the limits.
func (s *site) serveWith(limits *asynqlimit.Limits, srv *asynq.Server, mux *asynq.ServeMux) (stop func()) {
	s.t.Helper()
	return s.running(func(ctx context.Context) error { return limits.Serve(ctx, srv, mux) })
}

func (s *site) handler(m member) func(context.Context, *asynq.Task) error {
	return func(ctx context.Context, task *asynq.Task) error {
		at := time.Now() // before it waits for the mutex
		id, _ := asynq.GetTaskID(ctx)
		s.mu.Lock()
		s.starts = append(s.starts, start{id, task.Type(), m.name, at})
		s.mu.Unlock()
		select {
		case s.more <- struct{}{}:
		default:
		}
		if m.handle == nil {
			return nil
		}
		return m.handle(ctx, task)
	}
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func (s *site) enqueue(typ, id string, opts ...asynq.Option) {
	s.t.Helper()
	s.enqueuePayload(typ, id, nil, opts...)
}

func (s *site) enqueuePayload(typ, id string, payload []byte, opts ...asynq.Option) {
	s.t.Helper()
	if _, err := s.client.Enqueue(asynq.NewTask(typ, payload), append([]asynq.Option{asynq.TaskID(id)}, opts...)...); err != nil {
		s.t.Fatal(err)
	}
}

// seen returns the starts of tasks whose ids have this prefix.
func (s *site) seen(prefix string) []start {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []start
	for _, st := range s.starts {
		if strings.HasPrefix(st.id, prefix) {
			found = append(found, st)
		}
	}
	return found
}

// await waits until the condition holds.
func (s *site) await(within time.Duration, condition func() (bool, string)) {
	s.t.Helper()
	timeout := time.After(within)
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		ok, state := condition()
		if ok {
			return
		}
		select {
		case <-timeout:
			s.t.Fatalf("after %v: %s", within, state)
		case <-s.more:
		case <-poll.C:
		}
	}
}

func (s *site) awaitStarts(prefix string, n int, within time.Duration) []start {
	s.t.Helper()
	s.await(within, func() (bool, string) {
		got := len(s.seen(prefix))
		return got >= n, fmt.Sprintf("%d of %d starts of %q; %+v", got, n, prefix, s.queue("default"))
	})
	return s.seen(prefix)
}

func (s *site) queue(name string) asynq.QueueInfo {
	q, err := s.inspector.GetQueueInfo(name)
	if err != nil {
		return asynq.QueueInfo{Queue: name}
	}
	q.MemoryUsage, q.Timestamp, q.Latency = 0, time.Time{}, 0
	return *q
}

// awaitWaiting waits until n tasks of a queue are in asynq's retry set, and none is pending or
// active.
func (s *site) awaitWaiting(queue string, n int) {
	s.t.Helper()
	s.await(20*time.Second, func() (bool, string) {
		q := s.queue(queue)
		return q.Retry == n && q.Pending == 0 && q.Active == 0, fmt.Sprintf("%+v", q)
	})
}

// keysLeft returns our keys of a queue, but not those that a Redis is about to let expire. A
// miniredis keeps them.
func (s *site) keysLeft(queue string) []string {
	return slices.DeleteFunc(s.rdb.Keys(s.t.Context(), "asynq:{"+queue+"}:jt:*").Val(), func(key string) bool {
		left := s.rdb.PTTL(s.t.Context(), key).Val()
		return left > 0 && left <= 50*time.Millisecond
	})
}

// awaitDone waits until only completed tasks are left in the queue, and checks that nothing was
// archived, failed, or left behind.
func (s *site) awaitDone(queue string, within time.Duration) {
	s.t.Helper()
	s.await(within, func() (bool, string) {
		q := s.queue(queue)
		return q.Size-q.Completed == 0, fmt.Sprintf("%+v", q)
	})
	if q := s.queue(queue); q.Archived != 0 || q.Failed != 0 {
		s.t.Errorf("%d archived, %d failed", q.Archived, q.Failed)
	}
	s.await(15*time.Second, func() (bool, string) {
		keys := s.keysLeft(queue)
		return len(keys) == 0, fmt.Sprintf("keys left: %q", keys)
	})
}

func (s *site) limiter(name string) *throttle.Limiter {
	s.t.Helper()
	c, err := throttle.New(s.rdb, throttle.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { c.Close() })
	l, err := c.Limiter(name)
	if err != nil {
		s.t.Fatal(err)
	}
	return l
}

// newLimit makes a limiter, and returns its rate.
func (s *site) newLimit(name, rate string) (*throttle.Limiter, throttle.Rate) {
	s.t.Helper()
	r, err := throttle.ParseRate(rate)
	if err != nil {
		s.t.Fatal(err)
	}
	l := s.limiter(name)
	if _, err := l.TrySetRate(s.t.Context(), r); err != nil {
		s.t.Fatal(err)
	}
	return l, r
}

// stopLimit makes a limiter from which nobody gets permits until goOn is called.
func (s *site) stopLimit(name, rate string) (goOn func()) {
	s.t.Helper()
	l, _ := s.newLimit(name, rate)
	if err := l.Pause(s.t.Context(), time.Hour); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		s.t.Helper()
		if err := l.Resume(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

// busiest returns the largest number of starts in any stretch of time of that length.
func busiest(starts []start, window time.Duration) int {
	times := make([]time.Time, len(starts))
	for i, s := range starts {
		times[i] = s.at
	}
	slices.SortFunc(times, time.Time.Compare)
	most, first := 0, 0
	for i := range times {
		for times[i].Sub(times[first]) >= window {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// checkOrder checks that no task started more than a second before one that came earlier. Their
// ids say in which order they came.
func checkOrder(t testing.TB, starts []start) {
	t.Helper()
	byID := slices.SortedFunc(slices.Values(starts), func(a, b start) int { return strings.Compare(a.id, b.id) })
	for i, early := range byID {
		for _, late := range byID[i+1:] {
			if before := early.at.Sub(late.at); before > time.Second {
				t.Errorf("%s started %v before %s", late.id, before, early.id)
				return
			}
		}
	}
}
