package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/producer"
)

// usedUp takes what is left of the limit api, so that the next job is put off.
func (f *fleet) usedUp() {
	f.t.Helper()
	if _, err := f.limiter("api").TryAcquire(f.t.Context(), 1); err != nil {
		f.t.Fatal(err)
	}
}

// startsOf counts the starts of one task.
func (f *fleet) startsOf(id string) int {
	n := 0
	for _, s := range f.seen() {
		if s.id == id {
			n++
		}
	}
	return n
}

// enqueueEarlier adds a task as earlier versions of package producer did: with one retry more than
// it may have, and its own number in a header.
func (f *fleet) enqueueEarlier(typ, id string, maxRetry int, opts ...asynq.Option) {
	f.t.Helper()
	headers := map[string]string{producer.MaxRetryHeader: strconv.Itoa(maxRetry)}
	opts = append([]asynq.Option{asynq.TaskID(id), asynq.MaxRetry(maxRetry + 1)}, opts...)
	if _, err := f.client.Enqueue(asynq.NewTaskWithHeaders(typ, nil, headers), opts...); err != nil {
		f.t.Fatal(err)
	}
}

// enqueueOurs adds a task with package producer, and one as earlier versions did. Neither has a retry.
func (f *fleet) enqueueOurs(typ, ours, earlier string, timeout time.Duration) {
	f.t.Helper()
	job := producer.Job{Type: typ, ID: ours, MaxRetry: producer.None, Timeout: timeout}
	if _, err := producer.New(f.rdb).Enqueue(f.t.Context(), job); err != nil {
		f.t.Fatal(err)
	}
	f.enqueueEarlier(typ, earlier, 0, asynq.Timeout(timeout))
}

const onePerSecond = `
limits: { api: { rate: 1/1s } }
pools: [ { name: default, concurrency: 4 } ]
jobs: { "x:limited": { limits: [api], hold: 0 } }
log: { level: warn }
`

// TestNightlyTask: a task with a fixed id, without retries, is put off on its
// only attempt, each night. asynq keeps it for a while when it is done; before
// the next night that time is over.
func TestNightlyTask(t *testing.T) {
	t.Parallel()
	f := newFleet(t, onePerSecond)
	f.work(nil)
	for night := 1; night <= 3; night++ {
		f.awaitThat(5*time.Second, func() (bool, string) { // until the worker has made the limit
			_, err := f.limiter("api").Config(t.Context())
			return err == nil, fmt.Sprint(err)
		})
		limiter := f.limiter("api")
		if err := limiter.Pause(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		f.enqueue("x:limited", "nightly", asynq.MaxRetry(0), asynq.Retention(time.Hour))
		f.awaitState("nightly", asynq.TaskStateRetry)
		if err := limiter.Resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		if starts := f.await(night, 10*time.Second); len(starts) != night {
			t.Errorf("%d starts in %d nights", len(starts), night)
		}
		f.awaitIdle("default", 0)
		if err := f.inspector.DeleteTask("default", "nightly"); err != nil && !errors.Is(err, asynq.ErrTaskNotFound) {
			t.Fatal(err)
		}
	}
	if f.putOff() < 3 {
		t.Errorf("it was put off %d times, want each night", f.putOff())
	}
}

// TestPutOffKeepsTheTask: a task of another producer that is put off on its
// last attempt remains the same: its id, its count of retries and its lock.
func TestPutOffKeepsTheTask(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	f.work(nil)
	f.enqueue("x:limited", "first")
	f.await(1, 5*time.Second)
	task := asynq.NewTask("x:limited", []byte("payload"))
	opts := []asynq.Option{asynq.MaxRetry(0), asynq.Unique(time.Hour), asynq.Timeout(time.Minute), asynq.Retention(time.Hour)}
	if _, err := f.client.Enqueue(task, append(opts, asynq.TaskID("last"))...); err != nil {
		t.Fatal(err)
	}
	info := f.awaitState("last", asynq.TaskStateRetry)
	if info.Retried != 0 || info.MaxRetry != 0 || info.Timeout != time.Minute || info.Retention != time.Hour {
		t.Errorf("put off: %+v", info)
	}
	if _, err := f.client.Enqueue(task, opts...); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("its twin: %v, want a duplicate", err)
	}
	q, err := f.inspector.GetQueueInfo("default")
	if err != nil || q.Size != 1 || q.Archived != 0 || q.Failed != 0 {
		t.Errorf("queue %+v, %v, want the one task and no failure", q, err)
	}
}

// TestArchivedTasksRunAgain: if somebody runs an archived task again, with asynq's own tools,
// it runs: as often as they like, whatever error it had, and also if a limit puts it off first.
func TestArchivedTasksRunAgain(t *testing.T) {
	t.Parallel()
	f := newFleet(t, onePerSecond)
	endings := map[string]func(context.Context) error{
		"fails":     func(context.Context) error { return errors.New("no") },
		"panics":    func(context.Context) error { panic("no") },
		"times-out": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	}
	for ending := range endings {
		f.enqueueOurs("x:free", ending, "earlier-"+ending, time.Second)
		f.enqueue("x:free", "others-"+ending, asynq.MaxRetry(0), asynq.Timeout(time.Second))
	}
	f.enqueue("x:limited", "limited-fails", asynq.MaxRetry(0))
	f.work(func(ctx context.Context, _ *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		for ending, end := range endings {
			if id == ending || id == "earlier-"+ending || id == "others-"+ending || id == "limited-"+ending {
				return end(ctx)
			}
		}
		return nil
	})
	ids := []string{"fails", "panics", "times-out", "earlier-fails", "earlier-panics", "earlier-times-out", "others-fails", "others-panics", "others-times-out", "limited-fails"}
	for run := 1; run <= 3; run++ {
		for _, id := range ids {
			f.awaitState(id, asynq.TaskStateArchived)
			if n := f.startsOf(id); n != run {
				t.Fatalf("%s ran %d times, want %d", id, n, run)
			}
		}
		f.usedUp()
		for _, id := range ids {
			if err := f.inspector.RunTask("default", id); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestPutOffWhileRedisCannotWrite: Redis answers a task's last attempt with an
// error that soon is over. The task is put off all the same, also while the
// worker drains.
func TestPutOffWhileRedisCannotWrite(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		drains bool
	}{{"running", false}, {"draining", true}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t, stopped)
			asked, drains := make(chan struct{}), make(chan struct{})
			replicas := func(n string) {
				if err := f.rdb.ConfigSet(context.Background(), "min-replicas-to-write", n).Err(); err != nil {
					t.Error(err)
				}
			}
			stop := f.work(func(ctx context.Context, _ *asynq.Task) error {
				close(asked)
				if tt.drains {
					<-drains
				}
				replicas("1")
				time.AfterFunc(2500*time.Millisecond, func() { replicas("0") })
				return RetryAfter(time.Hour)
			})
			f.enqueue("x:free", "last", asynq.MaxRetry(0))
			<-asked
			if tt.drains {
				time.AfterFunc(500*time.Millisecond, func() { close(drains) })
				stop()
			}
			if info := f.awaitState("last", asynq.TaskStateRetry); info.Retried != 0 {
				t.Errorf("%d retries used", info.Retried)
			}
		})
	}
}

// deafRedis does not answer the first scripts that would put a task into the
// retry set.
type deafRedis struct {
	*redis.Client
	deaf atomic.Int32
}

func (r *deafRedis) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	if len(keys) == 4 && strings.HasSuffix(keys[2], ":retry") && r.deaf.Add(-1) >= 0 {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(io.ErrUnexpectedEOF)
		return cmd
	}
	return r.Client.EvalSha(ctx, sha1, keys, args...)
}

// workOver starts a worker that uses this Redis client.
func (f *fleet) workOver(rdb redis.UniversalClient, typ string, handle func(context.Context, *asynq.Task) error) (stop func()) {
	f.t.Helper()
	cfg, err := config.Parse("config.yaml", []byte(f.yaml))
	if err != nil {
		f.t.Fatal(err)
	}
	w, err := NewWithClient(cfg, f.log, rdb)
	if err != nil {
		f.t.Fatal(err)
	}
	w.HandleFunc(typ, func(ctx context.Context, task *asynq.Task) error {
		f.note(ctx, task)
		return handle(ctx, task)
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			f.t.Error(err)
		}
	}
}

// forgetfulRedis loses the first answers to whether a task is to be archived.
type forgetfulRedis struct {
	*redis.Client
	loses atomic.Int32
}

func (r *forgetfulRedis) EvalSha(ctx context.Context, sha1 string, keys []string, args ...any) *redis.Cmd {
	return r.lose(r.Client.EvalSha(ctx, sha1, keys, args...), keys, args)
}

func (r *forgetfulRedis) Eval(ctx context.Context, script string, keys []string, args ...any) *redis.Cmd {
	return r.lose(r.Client.Eval(ctx, script, keys, args...), keys, args)
}

func (r *forgetfulRedis) lose(cmd *redis.Cmd, keys []string, args []any) *redis.Cmd {
	asks := len(keys) == 1 && len(args) == 1 && strings.HasPrefix(keys[0], "asynq:{default}:t:")
	if asks && cmd.Err() == nil && r.loses.Add(-1) >= 0 {
		cmd.SetErr(io.ErrUnexpectedEOF)
	}
	return cmd
}

// TestLostAnswerOfTheLastAttempt: a task of an earlier version that has used up its attempts runs
// no more, also if the answer that says so gets lost.
func TestLostAnswerOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	rdb := &forgetfulRedis{Client: f.rdb}
	rdb.loses.Store(2)
	f.enqueueEarlier("x:free", "panics", 0)
	defer f.workOver(rdb, "x:free", func(context.Context, *asynq.Task) error { panic("no") })()
	f.awaitState("panics", asynq.TaskStateArchived)
	if n := f.startsOf("panics"); n != 1 || rdb.loses.Load() > 0 {
		t.Errorf("it ran %d times, %d answers left to lose", n, rdb.loses.Load())
	}
}

// TestPutOffWhileRedisIsAway: a task on its last attempt is put off all the same.
func TestPutOffWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	f := newFleet(t, stopped)
	rdb := &deafRedis{Client: f.rdb}
	rdb.deaf.Store(2)
	defer f.workOver(rdb, "x:free", nil)()
	f.enqueue("x:job", "last", asynq.MaxRetry(0)) // which has no handler
	if info := f.awaitState("last", asynq.TaskStateRetry); info.Retried != 0 || rdb.deaf.Load() > 0 {
		t.Errorf("%d retries used, %d scripts left to lose", info.Retried, rdb.deaf.Load())
	}
}
