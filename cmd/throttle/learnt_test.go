package main

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/worker"
)

// learnt makes a limit adapt, as if its API accepted lo to hi, and somebody else had used the
// quota.
func (s *site) learnt(name string, lo, hi int64, others time.Time) {
	s.Helper()
	l := s.limiter(name, throttle.Rate{Permits: 10, Interval: time.Hour}, 0)
	s.check(l.SetAdapt(s.Context(), throttle.Adapt{Min: 1, Max: 200}))
	fields := strings.Fields(s.rdb.HGet(s.Context(), name, "adapt").Val())
	fields[8], fields[10], fields[29] = strconv.FormatInt(lo, 10), strconv.FormatInt(hi, 10), strconv.FormatInt(others.UnixMicro(), 10)
	s.check(s.rdb.HSet(s.Context(), name, "adapt", strings.Join(fields, " ")).Err())
}

// TestTopOfALimitThatAdapts: top shows what the API accepts, for the limits that adapt.
func TestTopOfALimitThatAdapts(t *testing.T) {
	s := newSite(t)
	s.learnt("api", 38, 40, time.Now())
	s.limiter("plain", throttle.Rate{Permits: 10, Interval: time.Hour}, 0)
	got := s.done("top")
	for line := range strings.Lines(got) {
		if finds := strings.Contains(line, "finds 38 to 40"); finds != strings.HasPrefix(line, "api ") {
			t.Errorf("%q", line)
		}
	}
	if !strings.Contains(got, "finds") || !strings.Contains(s.done("top", "--json"), `"accepted":38,"most":40`) {
		t.Errorf("%s", got)
	}
}

// TestExplainALimitThatAdapts: who waits for such a limit is told what is known of its API, and
// that somebody else uses the quota.
func TestExplainALimitThatAdapts(t *testing.T) {
	s := newSite(t)
	w := s.workers(`
limits: { api: { rate: 1/1h, adapt: { min: 1, max: 200 } } }
pools: [ { name: default, concurrency: 2 } ]
jobs: { x: { limits: [api], hold: 0s } }
`)
	w.start(func(context.Context, *asynq.Task) error { return nil })
	for _, id := range []string{"one", "two"} {
		_, err := w.queue.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(id))
		s.check(err)
	}
	var parked string
	for deadline := time.Now().Add(20 * time.Second); parked == "" && time.Now().Before(deadline); {
		for _, id := range []string{"one", "two"} {
			if e, err := worker.NewInspector(s.rdb).Explain(t.Context(), id, ""); err == nil && e.Limiter != nil {
				parked = id
			}
		}
	}
	s.learnt("api", 0, 40, time.Now().Add(-time.Minute))
	got := s.done("explain", "--task", parked)
	for _, want := range []string{"finds by itself what its API takes: at most 40", "Somebody else uses the quota"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in:\n%s", want, got)
		}
	}
}
