package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
	"go.uber.org/zap/zaptest/observer"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
	"github.com/jobthrottle/jobthrottle/producer"
)

func TestMain(m *testing.M) {
	testkit.WaitMostly()
	goleak.VerifyTestMain(m)
}

// fleet is workers on one Redis, and what their handlers saw.
type fleet struct {
	t         testing.TB
	rdb       *redis.Client
	client    *asynq.Client
	inspector *asynq.Inspector
	yaml      string

	mu      sync.Mutex
	starts  []start
	logged  *observer.ObservedLogs
	log     *zap.Logger
	permits *handedOut    // nil: starts are when the handlers begin
	more    chan struct{} // has a token after a start
}

type start struct {
	id  string
	typ string
	at  time.Time // when its permits were handed out; of a task without limits, when its handler began
}

// handedOut records when the attempts that run got their permits: that is when a limit is kept
// or broken. The limit cannot help it if a busy machine runs the handler later: with six
// endless loops on the machine, handlers ran 16 ms later.
type handedOut struct {
	at sync.Map // trace.SpanID of an attempt: time.Time
}

func (h *handedOut) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (h *handedOut) Shutdown(context.Context) error                  { return nil }
func (h *handedOut) ForceFlush(context.Context) error                { return nil }

func (h *handedOut) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.Name() == "acquire" {
		h.at.Store(s.Parent().SpanID(), s.EndTime())
	} else {
		h.at.Delete(s.SpanContext().SpanID())
	}
}

// of returns when the attempt that ctx belongs to got its permits, and now if it needs none.
func (h *handedOut) of(ctx context.Context) time.Time {
	if h != nil {
		if at, ok := h.at.Load(trace.SpanContextFromContext(ctx).SpanID()); ok {
			return at.(time.Time)
		}
	}
	return time.Now()
}

func newFleet(t testing.TB, yaml string) *fleet {
	t.Helper()
	addr := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	core, logged := observer.New(zap.DebugLevel)
	warnings := zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)).Core()
	return &fleet{
		logged: logged, log: zap.New(zapcore.NewTee(core, warnings)),
		t: t, rdb: rdb, client: asynq.NewClientFromRedisClient(rdb), inspector: asynq.NewInspectorFromRedisClient(rdb),
		yaml:    fmt.Sprintf("redis: {addrs: [%q]}\n%s", addr, yaml),
		more:    make(chan struct{}, 1),
		permits: &handedOut{},
	}
}

// work starts a worker whose handler records the start and then calls handle. It stops with the
// returned function, or at the end of the test.
func (f *fleet) work(handle func(ctx context.Context, task *asynq.Task) error) (stop func()) {
	f.t.Helper()
	cfg, err := config.Parse("config.yaml", []byte(f.yaml))
	if err != nil {
		f.t.Fatal(err)
	}
	w, err := New(cfg, f.log)
	if err != nil {
		f.t.Fatal(err)
	}
	if f.permits != nil {
		w.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(f.permits)).Tracer("test")
	}
	w.HandleFunc("x", func(ctx context.Context, task *asynq.Task) error {
		f.note(ctx, task)
		if handle == nil {
			return nil
		}
		return handle(ctx, task)
	})
	return f.run(w)
}

// run runs a worker until the returned function is called, or the test ends.
func (f *fleet) run(w *Worker) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Errorf("Run: %v", err)
		}
	})
	f.t.Cleanup(stop)
	return stop
}

func (f *fleet) note(ctx context.Context, task *asynq.Task) {
	at := f.permits.of(ctx)
	id, _ := asynq.GetTaskID(ctx)
	f.mu.Lock()
	f.starts = append(f.starts, start{id, task.Type(), at})
	f.mu.Unlock()
	select {
	case f.more <- struct{}{}:
	default:
	}
}

func (f *fleet) seen() []start {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.starts)
}

// putOff is how many attempts a limit has put off.
func (f *fleet) putOff() int { return f.logged.FilterMessage("put off").Len() }

// await waits until n tasks have started, and returns the starts.
func (f *fleet) await(n int, within time.Duration) []start {
	f.t.Helper()
	f.awaitThat(within, func() (bool, string) {
		got := len(f.seen())
		return got >= n, fmt.Sprintf("%d of %d tasks started", got, n)
	})
	return f.seen()
}

// awaitThat waits until the condition holds. It checks it after each start, and regularly.
func (f *fleet) awaitThat(within time.Duration, condition func() (bool, string)) {
	f.t.Helper()
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
			f.t.Fatalf("after %v: %s", within, state)
		case <-f.more:
		case <-poll.C:
		}
	}
}

func (f *fleet) enqueue(typ, id string, opts ...asynq.Option) {
	f.t.Helper()
	opts = append([]asynq.Option{asynq.TaskID(id)}, opts...)
	if _, err := f.client.Enqueue(asynq.NewTask(typ, nil), opts...); err != nil {
		f.t.Fatal(err)
	}
}

// awaitIdle waits until no task is left in the queue other than archived ones, of which there have to be n.
func (f *fleet) awaitIdle(queue string, archived int) {
	f.t.Helper()
	f.awaitThat(10*time.Second, func() (bool, string) {
		q, err := f.inspector.GetQueueInfo(queue)
		if err != nil {
			f.t.Fatal(err)
		}
		left := q.Size - q.Completed - q.Archived
		return left == 0 && q.Archived == archived, fmt.Sprintf("%d tasks left, %d archived (want %d)", left, q.Archived, archived)
	})
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

const tenPerSecond = `
limits: { api: { rate: 10/1s } }
pools: [ { name: default, concurrency: 4, queues: {default: 1} } ]
jobs: { "x:limited": { limits: [api], hold: 0 } }
log: { level: warn }
`

func TestLimitHoldsAndParkedTasksComeBack(t *testing.T) {
	t.Parallel()
	f := newFleet(t, tenPerSecond)
	for i := range 40 {
		f.enqueue("x:limited", fmt.Sprint(i), asynq.MaxRetry(3))
	}
	for range 2 {
		f.work(nil)
	}
	starts := f.await(40, 10*time.Second)
	if got := busiest(starts, time.Second); got > 10 {
		t.Errorf("%d starts in one second, want at most 10", got)
	}
	if took := starts[39].at.Sub(starts[0].at); took > 5*time.Second { // 3.03 s; asynq's own retries come after 10 s
		t.Errorf("40 starts at 10 per second took %v", took)
	}
	f.awaitIdle("default", 0)
	f.awaitThat(10*time.Second, func() (bool, string) {
		keys := f.rdb.Keys(t.Context(), "*:jt:*").Val()
		return len(keys) == 0, fmt.Sprintf("keys left: %v", keys)
	})
}

func TestUnthrottledFindSlots(t *testing.T) {
	t.Parallel()
	f := newFleet(t, strings.ReplaceAll(tenPerSecond, "10/1s", "1/1h"))
	for i := range 50 {
		f.enqueue("x:limited", fmt.Sprint(i), asynq.MaxRetry(3))
	}
	f.work(nil)
	f.await(1, 5*time.Second)
	for i := range 50 {
		f.enqueue("x:free", fmt.Sprint("free", i))
	}
	before := time.Now()
	f.await(51, 5*time.Second)
	if took := time.Since(before); took > 2*time.Second {
		t.Errorf("50 tasks without limits took %v beside throttled ones", took)
	}
}

func TestLastAttempt(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		enqueue func(*fleet, int)
	}{
		{"of asynq's own client", func(f *fleet, i int) { f.enqueue("x:limited", fmt.Sprint("job", i), asynq.MaxRetry(0)) }},
		{"of the producer", func(f *fleet, i int) {
			p := producer.New(f.rdb)
			if _, err := p.Enqueue(f.t.Context(), producer.Job{Type: "x:limited", ID: fmt.Sprint("job", i), MaxRetry: producer.None, Retention: producer.None}); err != nil {
				f.t.Fatal(err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, tenPerSecond)
			for i := range 30 {
				tt.enqueue(f, i)
			}
			f.work(nil)
			starts := f.await(30, 10*time.Second)
			f.awaitIdle("default", 0)
			ids := map[string]bool{}
			for _, s := range starts {
				ids[strings.TrimSuffix(s.id, "~1")] = true
			}
			if len(ids) != 30 || len(starts) != 30 {
				t.Errorf("%d starts of %d tasks, want 30 of 30", len(starts), len(ids))
			}
		})
	}
}

func TestTrueMaximumOfRetries(t *testing.T) {
	t.Parallel()
	f := newFleet(t, tenPerSecond)
	f.enqueueOurs("x:free", "fails", "earlier-fails", time.Minute)
	f.work(func(context.Context, *asynq.Task) error { return errors.New("no") })
	for _, id := range []string{"fails", "earlier-fails"} {
		if info := f.awaitState(id, asynq.TaskStateArchived); info.Retried != 0 {
			t.Errorf("%s: archived after %d retries, want none", id, info.Retried)
		}
		if n := f.startsOf(id); n != 1 {
			t.Errorf("%s ran %d times, want once", id, n)
		}
	}
}

func TestUnreachableRedis(t *testing.T) {
	cfg := config.Default()
	cfg.Redis.Addrs = []string{"127.0.0.1:1"}
	w, err := New(cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") || !strings.Contains(err.Error(), "--embedded") {
		t.Errorf("got %v, want an error with the address and what to try", err)
	}
}

func TestSummary(t *testing.T) {
	cfg, err := config.Load("../config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.close() })
	want := []string{
		"pool default: 20 slots, 10 may wait; queues critical 6, default 3, low 1",
		"job http:request: example-api 100/1s, example-api-worker 25/1s per worker",
	}
	if got := w.Summary(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	cfg, err = config.Parse("config.yaml", []byte(`
limits: { crm: { in_flight: 1, key: payload.customer }, db: { in_flight: 5 }, api: { rate: 10/1s } }
jobs: { "crm:": { limits: [crm] }, "sync:": { limits: [api, db] }, "free:": {} }
`))
	if err != nil {
		t.Fatal(err)
	}
	inFlight, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { inFlight.close() })
	want = []string{"job crm:: crm 1 in flight per payload.customer", "job free:: no limit", "job sync:: api 10/1s, db 5 in flight"}
	if got := inFlight.Summary()[1:]; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestNoLogger: a worker without a logger works, and logs nothing.
func TestNoLogger(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "")
	cfg, err := config.Parse("config.yaml", []byte(f.yaml))
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.HandleFunc("x:", func(ctx context.Context, task *asynq.Task) error {
		f.note(ctx, task)
		return RetryAfter(time.Millisecond)
	})
	f.run(w)
	f.enqueue("x:free", "free")
	f.await(1, 5*time.Second)
}
