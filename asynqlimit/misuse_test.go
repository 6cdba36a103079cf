package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// limits returns limits for a configuration.
func (s *site) limits(yaml string) *asynqlimit.Limits {
	s.t.Helper()
	return s.limitsWith(yaml, asynqlimit.Options{})
}

func (s *site) limitsWith(yaml string, opts asynqlimit.Options) *asynqlimit.Limits {
	s.t.Helper()
	cfg, err := config.Parse("config.yaml", []byte(yaml))
	if err != nil {
		s.t.Fatal(err)
	}
	limits, err := asynqlimit.New(s.rdb, cfg, opts)
	if err != nil {
		s.t.Fatal(err)
	}
	return limits
}

// shutdownSeen is a logger of a server that has a value when the server begins to shut down.
type shutdownSeen chan struct{}

func (s shutdownSeen) Info(args ...any) {
	if strings.Contains(fmt.Sprint(args...), "graceful shutdown") {
		select {
		case s <- struct{}{}:
		default:
		}
	}
}
func (shutdownSeen) Debug(...any) {}
func (shutdownSeen) Warn(...any)  {}
func (shutdownSeen) Error(...any) {}
func (shutdownSeen) Fatal(...any) {}

// TestShutdownByTheProgram: a program that shuts its server down itself, as it did before it had limits, loses no
// job. Serve returns when all handlers have.
func TestShutdownByTheProgram(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"the server", "Serve"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			limits := s.limits(fiftyPerSecond)
			shuts := make(shutdownSeen, 1)
			srv := asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(asynq.Config{Concurrency: 10, LogLevel: asynq.InfoLevel, Logger: shuts}))
			began, ended := make(chan struct{}), atomic.Bool{}
			mux := asynq.NewServeMux()
			mux.HandleFunc("x:limited", func(context.Context, *asynq.Task) error {
				close(began)
				<-time.After(time.Second)
				ended.Store(true)
				return asynqlimit.RetryAfter(time.Minute)
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			served := make(chan error, 1)
			go func() { served <- limits.Serve(ctx, srv, mux) }()
			s.enqueue("x:limited", "last", asynq.MaxRetry(0))
			<-began
			if first == "the server" {
				go srv.Shutdown()
				<-shuts
			}
			cancel()
			srv.Shutdown()
			if err := <-served; err != nil || !ended.Load() {
				t.Errorf("Serve returned %v while a handler ran: %v", err, !ended.Load())
			}
			if q := s.queue("default"); q.Archived != 0 || q.Retry+q.Scheduled+q.Pending != 1 {
				t.Errorf("the job that was put off on its last attempt: %+v", q)
			}
		})
	}
}

// TestServeIsCalledWrongly: an error says what is wrong, and a server that runs goes on.
func TestServeIsCalledWrongly(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	server := func(limits *asynqlimit.Limits) *asynq.Server {
		return asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel}))
	}
	limits := s.limits(fiftyPerSecond)
	t.Cleanup(func() { limits.Close() })
	if err := limits.Serve(t.Context(), server(limits), nil); err == nil {
		t.Error("no error for a server without a handler")
	}
	limits = s.limits(fiftyPerSecond)
	mux := asynq.NewServeMux()
	mux.HandleFunc("x:limited", s.handler(member{}))
	srv := server(limits)
	stop := s.serveWith(limits, srv, mux)
	s.enqueue("x:limited", "first")
	s.awaitStarts("first", 1, 5*time.Second)
	if err := limits.Serve(t.Context(), srv, mux); err == nil || !strings.Contains(err.Error(), "Another") {
		t.Errorf("Serve called twice: %v, want an error that names Another", err)
	}
	s.enqueue("x:limited", "second")
	s.awaitStarts("second", 1, 5*time.Second)
	stop()
}

// TestServeIsForgotten: a server that is started without Serve gets no job, because no limit would apply. The log says
// once what to do. What asynq does beside that goes on: it brings scheduled tasks to their queue, and retries those of
// processes that died.
func TestServeIsForgotten(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var log logged
	limits := s.limitsWith(fiftyPerSecond, asynqlimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	t.Cleanup(func() { limits.Close() })
	s.enqueue("x:limited", "died", asynq.MaxRetry(1))
	s.takeAndDie("default", "died")
	s.enqueue("x:limited", "job")
	s.enqueue("x:limited", "scheduled", asynq.ProcessIn(time.Second))
	srv := asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: 100 * time.Millisecond}))
	mux := asynq.NewServeMux()
	mux.HandleFunc("x:limited", s.handler(member{}))
	if err := srv.Start(mux); err != nil {
		t.Fatal(err)
	}
	s.await(10*time.Second, func() (bool, string) {
		q := s.queue("default")
		return q.Pending == 2 && q.Retry == 1 && q.Active == 0 || len(s.seen("")) > 0, fmt.Sprintf("%+v", q)
	})
	srv.Shutdown()
	if ran := s.seen(""); len(ran) > 0 {
		t.Errorf("ran without limits: %+v", ran)
	}
	if told := log.with("level=ERROR"); len(told) != 1 || !strings.Contains(told[0], "limits.Serve(ctx, srv, mux)") {
		t.Errorf("told %q, want one line that says to call Serve", told)
	}
}

// takeAndDie makes a task that waits in a queue one of a process that took it, and died an hour ago.
func (s *site) takeAndDie(queue, id string) {
	s.t.Helper()
	keys := "asynq:{" + queue + "}:"
	if _, err := s.rdb.TxPipelined(s.t.Context(), func(pipe redis.Pipeliner) error {
		pipe.LMove(s.t.Context(), keys+"pending", keys+"active", "RIGHT", "LEFT")
		pipe.HSet(s.t.Context(), keys+"t:"+id, "state", "active")
		pipe.ZAdd(s.t.Context(), keys+"lease", redis.Z{Member: id, Score: float64(time.Now().Add(-time.Hour).Unix())})
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
}

// TestConfigureIsForgotten: Serve says so, and starts nothing.
func TestConfigureIsForgotten(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	first := s.limits(fiftyPerSecond)
	for name, limits := range map[string]*asynqlimit.Limits{"first server": first, "another": first.Another(asynqlimit.Options{})} {
		srv := asynq.NewServerFromRedisClient(limits.Redis(), asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		if err := limits.Serve(ctx, srv, asynq.NewServeMux()); !errors.Is(err, asynqlimit.ErrNotConfigured) {
			t.Errorf("%s: %v, want ErrNotConfigured", name, err)
		}
		cancel()
	}
}

// TestQueueAddedLater: jobs of a queue that Configure did not see stay where they are. The others run.
func TestQueueAddedLater(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	limits := s.limits(fiftyPerSecond)
	cfg := limits.Configure(asynq.Config{Concurrency: 10, LogLevel: asynq.FatalLevel, Queues: map[string]int{"default": 1}})
	cfg.Queues["later"] = 5
	mux := asynq.NewServeMux()
	mux.HandleFunc("x:limited", s.handler(member{}))
	s.enqueue("x:limited", "later", asynq.Queue("later"))
	s.enqueue("x:limited", "job")
	s.serveWith(limits, asynq.NewServerFromRedisClient(limits.Redis(), cfg), mux)
	s.awaitStarts("job", 1, 5*time.Second)
	s.awaitDone("default", 5*time.Second)
	if q := s.queue("later"); q.Pending != 1 || len(s.seen("later")) != 0 {
		t.Errorf("the queue that was added: %+v", q)
	}
}

// TestTraceMisbehaves: a Trace that returns nil traces nothing. If the end of a span panics, that costs the job and
// the server nothing.
func TestTraceMisbehaves(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var spans atomic.Int64
	const panics, jobs = 8, 30
	s.serve(member{yaml: fiftyPerSecond, asynq: asynq.Config{Concurrency: 2}, opts: asynqlimit.Options{
		MaxWaiting: 2,
		Trace: func(context.Context, []string, int64) func(error) {
			if spans.Add(1) > panics {
				return nil
			}
			return func(error) { panic("the end of a span") }
		},
	}})
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprint("job", i), asynq.MaxRetry(0))
	}
	s.await(10*time.Second, func() (bool, string) {
		q := s.queue("default")
		return q.Active+q.Pending+q.Retry+q.Scheduled+q.Archived == 0 && len(s.seen("")) == jobs, fmt.Sprintf("%d of %d started; %+v", len(s.seen("")), jobs, q)
	})
}

// TestPutOffIsNotUTF8: a job that is put off for a reason that is not valid UTF-8 parks at once, as any other.
func TestPutOffIsNotUTF8(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.serve(member{yaml: fiftyPerSecond, handle: func(context.Context, *asynq.Task) error {
		return asynqlimit.Blocked("no\tcredential", errors.New("the API said \xff\xfe"))
	}})
	s.enqueue("x:limited", "job", asynq.MaxRetry(0))
	s.await(5*time.Second, func() (bool, string) {
		q := s.queue("default")
		lines := s.rdb.ZRange(t.Context(), "asynq:{default}:jt:blocked", 0, -1).Val()
		return q.Retry == 1 && len(lines) == 1 && lines[0] == "!no_credential:x:limited", fmt.Sprintf("%+v, lines %q", q, lines)
	})
}

// TestUniqueJobIsArchived: the lock of a unique job lasts as long as its producer said when the job is archived, also
// if it was made longer while the job waited, once or twice.
func TestUniqueJobIsArchived(t *testing.T) {
	t.Parallel()
	for name, refusals := range map[string]int64{"once": 0, "twice": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			goOn := s.stopLimit("api", "50/1s")
			var tries atomic.Int64
			s.serve(member{yaml: fiftyPerSecond, handle: func(context.Context, *asynq.Task) error {
				if tries.Add(1) <= refusals {
					return asynqlimit.RetryAfter(100 * time.Millisecond)
				}
				return errors.New("it fails")
			}})
			const lasts = 4 * time.Second
			s.enqueue("x:limited", "first", asynq.Unique(lasts), asynq.MaxRetry(0))
			s.awaitWaiting("default", 1)
			goOn()
			s.await(10*time.Second, func() (bool, string) {
				q := s.queue("default")
				return q.Archived == 1, fmt.Sprintf("%+v", q)
			})
			s.await(lasts+2*time.Second, func() (bool, string) {
				_, err := s.client.Enqueue(asynq.NewTask("x:limited", nil), asynq.TaskID("second"), asynq.Unique(lasts))
				return err == nil, fmt.Sprint(err)
			})
		})
	}
}

// TestUniqueJobFailsAfterARetry: a unique job that has waited is brought back by an operator, and fails for good. Its lock
// ends when its producer said.
func TestUniqueJobFailsAfterARetry(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	goOn := s.stopLimit("api", "50/1s")
	s.serve(member{yaml: fiftyPerSecond, asynq: asynq.Config{RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour }},
		handle: func(context.Context, *asynq.Task) error { return errors.New("it fails") }})
	const lasts = 6 * time.Second
	s.enqueue("x:limited", "first", asynq.Unique(lasts), asynq.MaxRetry(1))
	s.awaitWaiting("default", 1)
	goOn()
	s.await(10*time.Second, func() (bool, string) {
		info, err := s.inspector.GetTaskInfo("default", "first")
		return err == nil && info.Retried == 1, fmt.Sprint(info, err)
	})
	at := s.rdb.ZScore(t.Context(), "asynq:{default}:retry", "first").Val()
	done, err := line.New(s.rdb).Again(t.Context(), "default", []line.Seen{{ID: "first", State: "retry", Score: at}})
	if err != nil || !done[0] {
		t.Fatal(done, err)
	}
	s.awaitArchived(1, 10*time.Second)
	s.await(lasts+2*time.Second, func() (bool, string) {
		_, err := s.client.Enqueue(asynq.NewTask("x:limited", nil), asynq.TaskID("second"), asynq.Unique(lasts))
		return err == nil, fmt.Sprint(err)
	})
}
