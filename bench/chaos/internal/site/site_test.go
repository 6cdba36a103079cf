//go:build unix

package site

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/judge"
)

// TestMain is also the judge's process, which is this program again.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == judge.Subcommand {
		if err := judge.Serve(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// TestShifted: a worker whose clock is to be an hour off works, and it is. It
// takes a minute to build: JOBTHROTTLE_NIGHTLY=1.
func TestShifted(t *testing.T) {
	if os.Getenv("JOBTHROTTLE_NIGHTLY") != "1" {
		t.Skip("takes a minute: set JOBTHROTTLE_NIGHTLY=1")
	}
	ctx := t.Context()
	programs, err := Build(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if programs.Shifted, err = BuildShifted(ctx, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	plan := Plan{Limit: check.Limit{Permits: 100, Interval: time.Second, Guard: 200 * time.Millisecond}, Workers: 1, Slots: 5, Waiting: 5, Hold: "2s"}
	s, err := Start(ctx, programs, plan, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	for _, shift := range []time.Duration{time.Hour, -time.Hour} {
		if err := s.Workers[0].StartShifted(int(shift / time.Second)); err != nil {
			t.Fatal(err)
		}
		if off := time.Until(heartbeat(t, s)); off < shift-time.Minute || off > shift+time.Minute {
			t.Errorf("the worker's clock is off by %v, want %v", off, shift)
		}
		if err := s.Workers[0].Drain(); err != nil {
			t.Fatal(err)
		}
	}
}

// heartbeat is until when, by its own clock, asynq believes that the only worker lives if it
// hears no more of it: some seconds from now.
func heartbeat(t *testing.T, s *Site) time.Time {
	t.Helper()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		servers, err := s.Client.ZRangeWithScores(t.Context(), "asynq:servers", 0, -1).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(servers) == 1 {
			return time.Unix(int64(servers[0].Score), 0)
		}
		select {
		case <-poll.C:
		case <-t.Context().Done():
			t.Fatal("no worker")
		}
	}
}

// TestWorkerEndsByItself: a worker that was not asked to end is an error, with what it said.
func TestWorkerEndsByItself(t *testing.T) {
	w := &Worker{Name: "worker-1", log: t.TempDir() + "/log", config: "no-such-file"}
	if err := w.start("sh"); err != nil { // sh --config no-such-file fails
		t.Fatal(err)
	}
	<-w.exited
	if err := w.Drain(); err == nil || !strings.Contains(err.Error(), "worker-1 ended by itself: exit status 2") {
		t.Errorf("%v, want that it ended by itself", err)
	}
}
