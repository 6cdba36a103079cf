package asynqlimit_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
)

// redisClock is the clock of a Redis in memory. It runs as fast as that of this process, and is wrong by as much as somebody
// has set it.
type redisClock struct {
	of *miniredis.Miniredis
	mu sync.Mutex
	by time.Duration
}

// step sets the clock forward, or back.
func (c *redisClock) step(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by += by
	c.of.SetTime(time.Now().Add(c.by))
}

// show sets the clock for a command, and then sends it.
func (c *redisClock) show(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
	c.step(0)
	return next(ctx, cmd)
}

// TestLinesWhenTheClockIsSet: somebody sets Redis's clock back and forward by an hour while 200 jobs in line start. No line
// stands still for longer than two intervals, all jobs run, and the limit holds, except that a clock that is an hour fast
// gives the permits of an interval early.
func TestLinesWhenTheClockIsSet(t *testing.T) {
	t.Parallel()
	const (
		jobs, limit     = 200, 20
		interval, guard = time.Second, 100 * time.Millisecond
		longest         = 2*(interval+guard) + 500*time.Millisecond
	)
	m := miniredis.RunT(t)
	s, clock := newSite(t, m.Addr()), &redisClock{of: m}
	s.rdb.AddHook(hook{clock.show})
	goOn := s.stopLimit("api", fmt.Sprintf("%d/%v", limit, interval))
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprintf("job%03d", i), asynq.MaxRetry(0))
	}
	for _, name := range []string{"one", "two"} {
		s.serve(member{name: name, yaml: fmt.Sprintf(`
limits: { api: { rate: %d/%v, guard: %v } }
jobs: { "x:limited": { limits: [api] } }
`, limit, interval, guard), asynq: asynq.Config{Concurrency: 10}, opts: asynqlimit.Options{MaxWaiting: 5}})
	}
	s.awaitWaiting("default", jobs)
	goOn()
	var fast time.Time // since when the clock was an hour fast
	wrong := time.Duration(0)
	for _, change := range []struct {
		after int
		steps []time.Duration
	}{
		{30, []time.Duration{-time.Hour}},
		{70, []time.Duration{time.Hour}}, // it is right again
		{110, []time.Duration{-time.Hour, time.Hour}},
		{130, []time.Duration{time.Hour}},
		{170, []time.Duration{-time.Hour}},
	} {
		s.awaitStarts("job", change.after, 2*longest+time.Duration(change.after/limit)*2*interval)
		for i, by := range change.steps {
			if i > 0 {
				<-time.After(300 * time.Millisecond) // for so long the clock is wrong
			}
			if wrong += by; wrong > 0 {
				fast = time.Now()
			}
			clock.step(by)
		}
	}
	starts := slices.SortedFunc(slices.Values(s.awaitStarts("job", jobs, 30*time.Second)), func(a, b start) int { return a.at.Compare(b.at) })
	s.awaitDone("default", 10*time.Second)
	for i, st := range starts[1:] {
		if gap := st.at.Sub(starts[i].at); gap > longest {
			t.Errorf("nothing started for %v after start %d, want %v at most", gap, i, longest)
		}
	}
	if len(starts) != jobs {
		t.Errorf("%d starts of %d jobs", len(starts), jobs)
	}
	t.Logf("%d jobs in %v", jobs, starts[jobs-1].at.Sub(starts[0].at))
	early := slices.IndexFunc(starts, func(st start) bool { return st.at.After(fast) })
	later := early + slices.IndexFunc(starts[early:], func(st start) bool { return st.at.After(fast.Add(2 * (interval + guard))) })
	const window = 950 * time.Millisecond // the test takes the time when handlers begin
	for name, part := range map[string][]start{"before the clock was fast": starts[:early], "two intervals after that": starts[later:]} {
		if most := busiest(part, window); most > limit {
			t.Errorf("%s, %d starts within %v, want at most %d", name, most, window, limit)
		}
	}
	if most := busiest(starts, window); most > 2*limit {
		t.Errorf("%d starts within %v when the clock was set forward, want at most %d", most, window, 2*limit)
	}
}
