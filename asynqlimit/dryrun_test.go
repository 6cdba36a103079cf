package asynqlimit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// buffer is a log to which several goroutines write.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// limitStats returns the statistics of a limit.
func limitStats(t *testing.T, l *asynqlimit.Limits, name string) asynqlimit.LimitStats {
	t.Helper()
	for _, s := range l.Stats().Limits {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no limit %q", name)
	return asynqlimit.LimitStats{}
}

// TestDryRun: a limit with dry_run never holds a job, whatever the reason would be, and logs each
// reason.
func TestDryRun(t *testing.T) {
	onBoth(t, func(s *site) {
		const yaml = `
limits:
  real: { rate: 1000/1s }
  few: { rate: 5/1h, dry_run: true }
  keyed: { rate: 100/1h, key: payload.account, dry_run: true }
  small: { rate: 2/1h, dry_run: true }
jobs:
  x: { limits: [real, few, keyed, small], permits: { small: payload.size } }
`
		var limits *asynqlimit.Limits
		var log buffer
		s.limiter("few") // makes no call
		s.serve(member{yaml: yaml, made: func(l *asynqlimit.Limits) { limits = l }, opts: asynqlimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}})
		for i := range 20 {
			s.enqueuePayload("x", fmt.Sprintf("a%02d", i), []byte(`{"account": "acme", "size": 1}`), asynq.MaxRetry(0))
		}
		s.enqueuePayload("x", "b-no-account", []byte(`{"size": 1}`), asynq.MaxRetry(0))
		s.enqueuePayload("x", "c-no-size", []byte(`{"account": "acme"}`), asynq.MaxRetry(0))
		s.enqueuePayload("x", "d-too-much", []byte(`{"account": "acme", "size": 3}`), asynq.MaxRetry(0))
		s.awaitStarts("", 23, 20*time.Second)
		s.awaitDone("default", 20*time.Second)
		want := map[string]asynqlimit.LimitStats{
			"real":  {Granted: 23},
			"few":   {Granted: 5, DryRun: true, WouldWait: 18},
			"keyed": {Granted: 22, DryRun: true, WouldWait: 1},
			"small": {Granted: 2, DryRun: true, WouldWait: 21},
		}
		for name, want := range want {
			want.Name = name
			s.await(5*time.Second, func() (bool, string) {
				got := limitStats(t, limits, name)
				got.Denied, got.Parked = 0, 0 // other jobs may be on their way to their permits
				return got == want, fmt.Sprintf("%+v, want %+v", got, want)
			})
		}
		for _, want := range []string{"would wait", "limit=few", "limit=keyed", "limit=small"} {
			s.await(5*time.Second, func() (bool, string) {
				return strings.Contains(log.String(), want), fmt.Sprintf("no %q in the log:\n%s", want, log.String())
			})
		}
	})
}

// TestDryRunCostsNothing: a job that waits for another limit takes nothing from the limit with
// dry_run. A limit with dry_run neither waits for the end of a pause nor begins one.
func TestDryRunCostsNothing(t *testing.T) {
	onBoth(t, func(s *site) {
		goOn := s.stopLimit("real", "1000/1s")
		const yaml = `
limits:
  real: { rate: 1000/1s }
  trial: { rate: 100/1h, dry_run: true }
jobs:
  x: { limits: [real, trial], hold: 0s }
  y: { limits: [trial] }
`
		var once sync.Once
		s.serve(member{yaml: yaml, asynq: asynq.Config{DelayedTaskCheckInterval: 200 * time.Millisecond}, handle: func(_ context.Context, task *asynq.Task) (err error) {
			if task.Type() == "y" {
				once.Do(func() { err = asynqlimit.RetryAfter(100 * time.Millisecond) })
			}
			return err
		}})
		for i := range 5 {
			s.enqueue("x", fmt.Sprintf("x%d", i))
		}
		s.awaitWaiting("default", 5)
		left := func() int64 {
			t.Helper()
			n, err := s.limiter("trial").AvailablePermits(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := left(); n != 100 {
			t.Errorf("%d of 100 permits left, while all jobs wait for another limit", n)
		}
		if err := s.limiter("trial").Pause(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		s.enqueue("y", "y0", asynq.MaxRetry(0))
		s.awaitStarts("y0", 2, 20*time.Second) // the API has refused it once
		goOn()
		s.awaitStarts("x", 5, 20*time.Second)
		s.awaitDone("default", 20*time.Second)
		u, err := s.limiter("trial").Config(t.Context())
		if err != nil || u.Permits != 100 {
			t.Errorf("%v, %v", u, err)
		}
	})
}

// TestDryRunInFlight: a limit in flight with dry_run never holds a job. A job has a slot until it ends if there is one, and
// otherwise counts as one that would wait.
func TestDryRunInFlight(t *testing.T) {
	onBoth(t, func(s *site) {
		const yaml = `
limits:
  few: { in_flight: 2, dry_run: true }
  keyed: { in_flight: 1, key: payload.account, dry_run: true }
jobs:
  x: { limits: [few, keyed] }
`
		var limits *asynqlimit.Limits
		var log buffer
		end := make(chan struct{})
		s.serve(member{yaml: yaml, made: func(l *asynqlimit.Limits) { limits = l }, opts: asynqlimit.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))},
			asynq: asynq.Config{Concurrency: 10}, handle: func(ctx context.Context, _ *asynq.Task) error {
				select {
				case <-end:
				case <-ctx.Done():
				}
				return ctx.Err()
			}})
		await := func(name string, held, running, wouldWait int64) {
			t.Helper()
			want := asynqlimit.SlotStats{Name: name, Held: held, Running: running, DryRun: true, WouldWait: wouldWait}
			s.await(5*time.Second, func() (bool, string) {
				stats := limits.Stats().Slots
				i := slices.IndexFunc(stats, func(got asynqlimit.SlotStats) bool { return got.Name == name })
				return stats[i] == want, fmt.Sprintf("%+v, want %+v", stats[i], want)
			})
		}
		for i, payload := range []string{`{"account": "acme"}`, `{"account": "acme"}`, `{"account": "b"}`, `{"account": "b"}`, `{}`} {
			s.enqueuePayload("x", fmt.Sprint("first", i), []byte(payload), asynq.MaxRetry(0))
		}
		s.awaitStarts("", 5, 5*time.Second) // none has ended
		await("few", 2, 2, 3)
		await("keyed", 2, 2, 3)
		close(end)
		s.awaitDone("default", 5*time.Second)
		await("few", 2, 0, 3)
		await("keyed", 2, 0, 3)
		s.enqueuePayload("x", "again", []byte(`{"account": "acme"}`), asynq.MaxRetry(0))
		s.awaitDone("default", 5*time.Second)
		await("few", 3, 0, 3)
		await("keyed", 3, 0, 3)
		for _, want := range []string{"would wait", "limit=few", "limit=keyed"} {
			s.await(5*time.Second, func() (bool, string) {
				return strings.Contains(log.String(), want), fmt.Sprintf("no %q in the log:\n%s", want, log.String())
			})
		}
	})
}

// TestDryRunOfQueuesInLine: jobs are in line for limits that give nothing for a long time. When these get dry_run, the jobs run.
func TestDryRunOfQueuesInLine(t *testing.T) {
	onBoth(t, func(s *site) {
		const yaml = `
limits:
  daily: { rate: 5/24h%[1]s }
  shared: { rate: 5/24h, share: payload.tenant%[1]s }
  few: { in_flight: 2%[1]s }
  keyed: { in_flight: 1, key: payload.tenant%[1]s }
jobs:
  "x:daily": { limits: [daily], hold: 0s }
  "x:shared": { limits: [shared], hold: 0s }
  "x:few": { limits: [few], hold: 0s }
  "x:keyed": { limits: [keyed], hold: 0s }
`
		s.stopLimit("daily", "5/24h")
		s.stopLimit("shared", "5/24h")
		s.takeAllSlots("few", 2)
		s.takeAllSlots("keyed:acme", 1)
		stop := s.serve(member{yaml: fmt.Sprintf(yaml, "")})
		const each = 20
		for i := range each {
			for _, limit := range []string{"daily", "shared", "few", "keyed"} {
				s.enqueuePayload("x:"+limit, fmt.Sprint(limit, i), []byte(`{"tenant": "acme"}`))
			}
		}
		s.awaitWaiting("default", 4*each)
		stop()
		s.serve(member{yaml: fmt.Sprintf(yaml, ", dry_run: true")})
		s.awaitStarts("", 4*each, 5*time.Second)
		s.await(5*time.Second, func() (bool, string) {
			q := s.queue("default")
			return q.Size == 0 && q.FailedTotal == 0, fmt.Sprintf("%+v", q)
		})
	})
}

// TestDryRunOfSomeWorkers: in a deployment that gives a limit dry_run, the last worker without it goes on to park jobs. As far as the
// worker with dry_run has slots, jobs run all the same, and the others stay where they are.
func TestDryRunOfSomeWorkers(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ more, limiter string }{
		"one":     {"", "api"},
		"tenants": {", share: payload.tenant", "api"},
		"values":  {", key: payload.tenant", "api:acme"},
		"clients": {", type: per_client", "api"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const yaml = "limits: { api: { rate: 5/24h%s } }\njobs: { \"x:limited\": { limits: [api], hold: 0s } }\n"
			const jobs, starts, lasts = 400, 20, 100 * time.Millisecond
			s := newSite(t, redistest.Start(t))
			s.stopLimit(tt.limiter, "5/24h")
			s.serve(member{yaml: fmt.Sprintf(yaml, tt.more)})
			for i := range jobs {
				s.enqueuePayload("x:limited", fmt.Sprintf("job%03d", i), []byte(`{"tenant": "acme"}`))
			}
			s.awaitWaiting("default", jobs)
			s.rdb.ConfigResetStat(t.Context())
			s.serve(member{yaml: fmt.Sprintf(yaml, tt.more+", dry_run: true"), asynq: asynq.Config{Concurrency: 2}, handle: lasting(lasts)})
			s.awaitStarts("job", starts, 5*time.Second) // 1 s if that worker were alone
			moved := 0
			for stat := range strings.Lines(s.rdb.Info(t.Context(), "commandstats").Val()) {
				_, _ = fmt.Sscanf(stat, "cmdstat_lrem:calls=%d,", &moved)
			}
			t.Logf("%d jobs were taken off the queue or the active ones", moved)
			if moved > jobs {
				t.Errorf("%d jobs moved, want a few beside the %d that ran", moved, starts)
			}
		})
	}
}

// TestDryRunOfManyLines: jobs are in line for many values of a limit when it gets dry_run. All of them run, and no line is left,
// not even one whose jobs were deleted meanwhile, or one that is empty.
func TestDryRunOfManyLines(t *testing.T) {
	onBoth(t, func(s *site) {
		const yaml = "limits: { api: { rate: 1/24h, key: payload.account%s } }\njobs: { \"x:limited\": { limits: [api], hold: 0s } }\n"
		const values = 150
		stop := s.serve(member{yaml: fmt.Sprintf(yaml, "")})
		for i := range 3 * values {
			s.enqueuePayload("x:limited", fmt.Sprintf("job%03d", i), fmt.Appendf(nil, `{"account": "%d"}`, i%values))
		}
		s.awaitStarts("job", values, 20*time.Second)
		s.awaitWaiting("default", 2*values)
		stop()
		inspector := asynq.NewInspectorFromRedisClient(s.rdb)
		deleted := 0
		for i := values; i < 3*values; i++ {
			if i%values < 5 {
				if err := inspector.DeleteTask("default", fmt.Sprintf("job%03d", i)); err != nil {
					s.t.Fatal(err)
				}
				deleted++
			}
		}
		if err := s.rdb.ZAdd(s.t.Context(), "asynq:{default}:jt:lines", redis.Z{Member: "api:nobody"}).Err(); err != nil {
			s.t.Fatal(err)
		}
		s.serve(member{yaml: fmt.Sprintf(yaml, ", dry_run: true")})
		s.awaitStarts("job", 3*values-deleted, 10*time.Second)
		s.awaitDone("default", 5*time.Second)
	})
}
