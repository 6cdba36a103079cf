package throttle

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestAdapts: two clients find the limit of an API that never says it, on a real Redis.
func TestAdapts(t *testing.T) {
	addr := redistest.New(t).Addr
	s := realServer(t, addr)
	ctx := t.Context()
	const limit, window = 60, 250 * time.Millisecond
	api := &hiding{limit: limit, window: window}
	rate := Rate{Permits: 6, Interval: window, Guard: 10 * time.Millisecond}
	var ls []*Limiter
	for range 2 {
		c, err := New(dial(t, addr), Options{})
		check(t, err)
		t.Cleanup(func() { check(t, c.Close()) })
		l, err := c.LimiterWithRate("api", rate)
		check(t, err)
		check(t, l.SetAdapt(ctx, Adapt{Min: 1, Max: 1000}))
		ls = append(ls, l)
	}
	running, stop := context.WithTimeout(ctx, 8*time.Second)
	defer stop()
	var wg sync.WaitGroup
	for i := range 64 {
		l := ls[i%2]
		wg.Go(func() {
			for l.Acquire(running, 1) == nil {
				sent := time.Now()
				l.Observe(sent, Outcome{Refused: !api.takes(sent)})
			}
		})
	}
	wg.Wait()
	r, err := ls[0].Config(ctx)
	check(t, err)
	t.Logf("limit %d of %d, took %d, refused %d: %s", r.Permits, limit, api.took.Load(), api.refused.Load(), s.rdb.HGet(ctx, "api", "adapt").Val())
	if r.Permits < limit*8/10 || r.Permits > limit*11/10 || api.refused.Load() > api.took.Load()/20 {
		t.Errorf("limit %d, want about %d; %d refused beside %d", r.Permits, limit, api.refused.Load(), api.took.Load())
	}
}

// hiding is an API that accepts so many requests in any window, and does not say so.
type hiding struct {
	limit         int
	window        time.Duration
	mu            sync.Mutex
	seen          []time.Time
	took, refused atomic.Int64
}

func (h *hiding) takes(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.seen) > 0 && now.Sub(h.seen[0]) >= h.window {
		h.seen = h.seen[1:]
	}
	if len(h.seen) >= h.limit {
		h.refused.Add(1)
		return false
	}
	h.seen = append(h.seen, now)
	h.took.Add(1)
	return true
}

// TestAdaptAndRates: what was learnt stays while the file says the same, is forgotten when
// somebody sets a rate, and ends with a file that has no adapt.
func TestAdaptAndRates(t *testing.T) {
	s := fakeServer(t)
	ctx := t.Context()
	c, err := New(s.rdb, Options{})
	check(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	l, err := c.Limiter("api")
	check(t, err)
	rate, bounds := Rate{Permits: 10, Interval: time.Second}, Adapt{Min: 2, Max: 100}
	adaptive := func() string { return s.rdb.HGet(ctx, "api", "adapt").Val() }
	permits := func() int64 {
		r, err := l.Config(ctx)
		check(t, err)
		return r.Permits
	}
	apply := func(r Rate, a Adapt) {
		t.Helper()
		if _, err := l.ApplyAdapt(ctx, r, a); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.SetAdapt(ctx, bounds); !errors.Is(err, ErrNotInitialized) {
		t.Errorf("without a rate: %v", err)
	}
	apply(rate, bounds)
	learnt := strings.Fields(adaptive())
	learnt[5] = "37" // as if it had been found
	check(t, s.rdb.HSet(ctx, "api", "adapt", strings.Join(learnt, " "), "rate", 37).Err())
	apply(rate, bounds)
	check(t, l.SetAdapt(ctx, bounds))
	if permits() != 37 || !strings.Contains(adaptive(), " 37 ") {
		t.Errorf("the same file: %d, %s", permits(), adaptive())
	}
	apply(rate, Adapt{Min: 40, Max: 100})
	if permits() != 40 {
		t.Errorf("min of 40: %d", permits())
	}
	apply(Rate{Permits: 50, Interval: time.Second}, Adapt{Min: 40, Max: 100})
	if permits() != 50 {
		t.Errorf("another start: %d", permits())
	}
	check(t, l.SetRate(ctx, Rate{Permits: 70, Interval: time.Second}))
	if permits() != 70 || strings.Fields(adaptive())[5] != "70" {
		t.Errorf("set: %d, %s", permits(), adaptive())
	}
	apply(Rate{Permits: 50, Interval: time.Second}, Adapt{Min: 40, Max: 100})
	if permits() != 70 {
		t.Errorf("the file after an operator: %d", permits())
	}
	apply(rate, Adapt{})
	if permits() != 10 || adaptive() != "0" {
		t.Errorf("a file without adapt: %d, %s", permits(), adaptive())
	}
	for _, bad := range []Adapt{{Min: 0, Max: 5}, {Min: 5, Max: 4}, {Min: 1, Max: MaxPermits + 1}, {Min: -1}} {
		if err := l.SetAdapt(ctx, bad); !errors.Is(err, ErrInvalidRate) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	each, err := c.LimiterWithRate("each", Rate{Permits: 10, Interval: time.Second, Type: PerClient})
	check(t, err)
	if err := each.SetAdapt(ctx, bounds); !errors.Is(err, ErrInvalidRate) {
		t.Errorf("per client: %v", err)
	}
}

// TestWithoutAdapt: a limiter that is not adaptive has no field for it, and what is observed of
// it costs no call.
func TestWithoutAdapt(t *testing.T) {
	s := fakeServer(t)
	ctx := t.Context()
	c, err := New(s.rdb, Options{})
	check(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	l, err := c.LimiterWithRate("api", Rate{Permits: 10, Interval: time.Second})
	check(t, err)
	check(t, l.Acquire(ctx, 1))
	g, err := c.Group(l)
	check(t, err)
	before := c.Stats().Calls
	for range 100 {
		l.Observe(time.Now(), Outcome{Refused: true})
		g.Observe(time.Now(), Outcome{})
	}
	if n := c.Stats().Calls - before; n != 0 || s.rdb.HExists(ctx, "api", "adapt").Val() {
		t.Errorf("%d calls; field there: %v", n, s.rdb.HExists(ctx, "api", "adapt").Val())
	}
}
