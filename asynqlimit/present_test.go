package asynqlimit_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/history"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/presence"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

const presentYAML = `
limits: { api: { rate: 1000/1s } }
jobs: { x: { limits: [api] }, "mial:send": { limits: [api] } }
`

func (s *site) workers() []jobview.Worker {
	s.t.Helper()
	workers, err := jobview.NewInspector(s.rdb).Workers(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return workers
}

// explained returns the explanation of a task.
func (s *site) explained(id string) string {
	s.t.Helper()
	e, err := jobview.NewInspector(s.rdb).Explain(s.t.Context(), id, "")
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Join(e.Text(), "\n")
}

// awaitExplained waits until the explanation contains these words.
func (s *site) awaitExplained(id, words string) {
	s.t.Helper()
	s.await(2*presence.Every, func() (bool, string) {
		said := s.explained(id)
		return strings.Contains(said, words), said
	})
}

// TestPresent: workers say what they serve and how busy they are, from start to stop, and leave
// nothing behind.
func TestPresent(t *testing.T) {
	onBoth(t, func(s *site) {
		begun, goOn := make(chan struct{}), make(chan struct{})
		stop := s.serve(member{yaml: presentYAML, handle: hold(begun, goOn), opts: asynqlimit.Options{MaxWaiting: 7}, asynq: asynq.Config{
			Concurrency: 3, Queues: map[string]int{"default": 2, "low": 1}, StrictPriority: true,
		}})
		s.enqueue("x", "job")
		<-begun
		s.await(2*presence.Every, func() (bool, string) {
			workers := s.workers()
			return len(workers) == 1 && len(workers[0].Pools) == 1 && workers[0].Pools[0].Running == 1, fmt.Sprintf("%+v", workers)
		})
		w := s.workers()[0]
		host, _ := os.Hostname()
		if w.Host != host || w.PID != os.Getpid() || w.Version == "" || len(w.Config) != 12 || time.Since(w.Started) > time.Minute || w.Seen.IsZero() {
			t.Errorf("%+v", w)
		}
		p := w.Pools[0]
		if p.Name != "default" || p.Slots != 3 || p.MaxWaiting != 7 || !p.Strict || !p.Takes || p.Waiting != 0 || fmt.Sprint(p.Queues) != "map[default:2 low:1]" {
			t.Errorf("%+v", p)
		}
		if w.Handles("x") != presence.Unknown || w.Handles("mial:send") != presence.LacksHandler {
			t.Errorf("it says of x %v, of mial:send %v", w.Handles("x"), w.Handles("mial:send"))
		}
		stopped := make(chan struct{})
		go func() { stop(); close(stopped) }()
		s.await(presence.Every, func() (bool, string) { // it drains, which is told at once
			workers := s.workers()
			return len(workers) == 1 && !workers[0].Pools[0].Takes, fmt.Sprintf("%+v", workers)
		})
		close(goOn)
		<-stopped
		if keys := s.rdb.Keys(t.Context(), "jobthrottle:worker*").Val(); len(keys) > 0 {
			t.Errorf("it has gone, and leaves %q", keys)
		}
	})
}

// TestPresentExpires: a worker that was killed is forgotten.
func TestPresentExpires(t *testing.T) {
	onBoth(t, func(s *site) {
		if _, err := s.rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			presence.Here(t.Context(), p, presence.Worker{ID: "killed"})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"jobthrottle:worker:killed", "jobthrottle:workers"} {
			if left := s.rdb.PTTL(t.Context(), key).Val(); left <= 0 || left > 15*time.Second {
				t.Errorf("%s is left for %v", key, left)
			}
		}
	})
}

// TestPresentAcrossServers: the servers of a process are one worker, whichever of them ends
// first.
func TestPresentAcrossServers(t *testing.T) {
	onBoth(t, func(s *site) {
		var second *asynqlimit.Limits
		stopFirst := s.serve(member{yaml: presentYAML, made: func(l *asynqlimit.Limits) {
			second = l.Another(asynqlimit.Options{Concurrency: 2})
		}})
		srv := asynq.NewServerFromRedisClient(second.Redis(), second.Configure(asynq.Config{Queues: map[string]int{"other": 1}, LogLevel: asynq.WarnLevel}))
		stopSecond := s.serveWith(second, srv, asynq.NewServeMux())
		s.await(presence.Every, func() (bool, string) {
			workers := s.workers()
			return len(workers) == 1 && len(workers[0].Pools) == 2 && workers[0].Serves("default") && workers[0].Serves("other"), fmt.Sprintf("%+v", workers)
		})
		stopFirst()
		s.await(presence.Every, func() (bool, string) {
			workers := s.workers()
			return len(workers) == 1 && len(workers[0].Pools) == 1 && workers[0].Serves("other") && !workers[0].Serves("default"), fmt.Sprintf("%+v", workers)
		})
		stopSecond()
		if workers := s.workers(); len(workers) > 0 {
			t.Errorf("%+v", workers)
		}
	})
}

// TestExplainWorkers: an explanation says which workers are missing, and which have other
// configurations.
func TestExplainWorkers(t *testing.T) {
	onBoth(t, func(s *site) {
		s.enqueue("mial:send", "job")
		s.awaitExplained("job", "No running worker serves queue default")
		stop := s.serve(member{yaml: presentYAML})
		s.awaitExplained("job", "has a handler for type mial:send")
		s.serve(member{yaml: strings.Replace(presentYAML, "1000/1s", "2000/1s", 1)})
		s.awaitExplained("job", "another configuration")
		stop()
		s.await(5*time.Second, func() (bool, string) {
			said := s.explained("job")
			return !strings.Contains(said, "another configuration"), said
		})
	})
}

// TestPresentOfStrangers: whatever somebody writes there, it is harmless to read it.
func TestPresentOfStrangers(t *testing.T) {
	onBoth(t, func(s *site) {
		for id, fields := range map[string][]any{
			"odd":   {"pools", `[{"slots": -5, "running": 999999999999, "queues": {"a": -1}}, null]`, "started", "1e300", "pid", "x", "types", "{}", "lacks", "7"},
			"large": {"version", strings.Repeat("v", 1<<20), "types", `["x"]`},
			"a\nb":  {"host", "\x1b[31m"},
		} {
			if err := s.rdb.HSet(t.Context(), "jobthrottle:worker:"+id, fields...).Err(); err != nil {
				t.Fatal(err)
			}
			if err := s.rdb.ZAdd(t.Context(), "jobthrottle:workers", z(1e300, id)).Err(); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.rdb.ZAdd(t.Context(), "jobthrottle:workers", z(1, "silent")).Err(); err != nil {
			t.Fatal(err)
		}
		workers := s.workers()
		if len(workers) != 3 {
			t.Fatalf("%+v", workers)
		}
		for _, w := range workers {
			if len(w.Version) > 100 || w.Serves("a") || !w.Started.IsZero() {
				t.Errorf("%+v", w)
			}
			for _, p := range w.Pools {
				if p.Slots < 0 || p.Running > 1_000_000 {
					t.Errorf("%+v", p)
				}
			}
		}
	})
}

// hold returns a handler that waits, and says when it has begun.
func hold(begun chan<- struct{}, goOn <-chan struct{}) func(context.Context, *asynq.Task) error {
	return func(ctx context.Context, _ *asynq.Task) error {
		begun <- struct{}{}
		select {
		case <-goOn:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func z(score float64, member string) redis.Z { return redis.Z{Score: score, Member: member} }

// TestHistory: what the jobs of a process did is in the fleet's history, limit by limit, also
// what they did last.
func TestHistory(t *testing.T) {
	onBoth(t, func(s *site) {
		stop := s.serve(member{handle: func(_ context.Context, task *asynq.Task) error {
			if task.Type() == "y" {
				return errors.New("failed")
			}
			return nil
		}, yaml: `
limits: { api: { rate: 1000/1s }, other: { rate: 1000/1s } }
jobs: { x: { limits: [api] }, y: { limits: [api, other] } }
`})
		for i := range 3 {
			s.enqueue("x", fmt.Sprint("x", i))
		}
		s.enqueue("y", "y", asynq.MaxRetry(0))
		s.awaitStarts("x", 3, 10*time.Second)
		s.awaitStarts("y", 1, 10*time.Second)
		stop()
		s.wantHistory(map[string]history.Counts{"": {Started: 4, Failed: 1}, "api": {Started: 4, Failed: 1}, "other": {Started: 1, Failed: 1}})
	})
}

// wantHistory checks what the history says of each limit.
func (s *site) wantHistory(want map[string]history.Counts) {
	s.t.Helper()
	past, err := history.NewReader(s.rdb).Read(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	sums := map[string]history.Counts{}
	for _, span := range past.Spans {
		for limit, c := range span {
			sums[limit] = history.Counts{Started: sums[limit].Started + c.Started, Failed: sums[limit].Failed + c.Failed}
		}
	}
	if !maps.Equal(sums, want) {
		s.t.Errorf("%+v, want %+v", sums, want)
	}
}

// slowHistory makes calls that add to the history wait.
type slowHistory struct{ hook }

func (slowHistory) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (slowHistory) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if slices.ContainsFunc(cmds, func(cmd redis.Cmder) bool { return strings.Contains(cmd.String(), "jobthrottle:history") }) {
			<-time.After(1500 * time.Millisecond)
		}
		return next(ctx, cmds)
	}
}

// TestHistoryOfALateAnswer: a server that ends while Redis is slow to note what its jobs did waits for that.
func TestHistoryOfALateAnswer(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	rdb := redis.NewClient(s.rdb.Options())
	t.Cleanup(func() { rdb.Close() })
	rdb.AddHook(slowHistory{})
	stop := s.serve(member{rdb: rdb, yaml: `
limits: { api: { rate: 1000/1s } }
jobs: { x: { limits: [api] } }
`})
	s.enqueue("x", "x")
	s.awaitStarts("x", 1, 10*time.Second)
	stop()
	s.wantHistory(map[string]history.Counts{"": {Started: 1}, "api": {Started: 1}})
}
