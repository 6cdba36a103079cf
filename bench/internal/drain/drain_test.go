package drain

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var small = Load{
	Limit:    fleet.Limit{Name: "small", Permits: 8, Interval: time.Second},
	Guard:    50 * time.Millisecond, // beside other test programs a process stands still for longer than 10 ms
	Tasks:    16,
	Servers:  2,
	Slots:    4,
	Patience: time.Minute,
}

// TestRun: every way starts every task once, on both servers, and those of this project never
// start more within a second than the limit.
func TestRun(t *testing.T) {
	for _, way := range Ways() {
		t.Run(way.Name, func(t *testing.T) {
			t.Parallel()
			starts, err := Run(t.Context(), redistest.Start(t), small, way)
			if err != nil {
				t.Fatal(err)
			}
			if len(starts) != small.Tasks {
				t.Errorf("%d starts of %d tasks", len(starts), small.Tasks)
			}
			for i := 1; i < len(starts); i++ {
				if starts[i].At < starts[i-1].At {
					t.Errorf("start %d is not in the order of time", i)
				}
			}
			most := fleet.Busiest(starts, small.Limit.Interval)
			if ours := way.Name == NameWaiting || way.Name == NameParking; ours && most > small.Limit.Permits {
				t.Errorf("%d starts in a second, want at most %d", most, small.Limit.Permits)
			}
		})
	}
}

// TestPatience: tasks that do not start in time are missing, which is not an error.
func TestPatience(t *testing.T) {
	l := small
	l.Limit.Interval, l.Patience = time.Hour, time.Second
	starts, err := Run(t.Context(), redistest.Start(t), l, Way{NameWaiting, serveWaiting})
	if err != nil {
		t.Fatal(err)
	}
	if len(starts) != int(l.Limit.Permits) {
		t.Errorf("%d starts, want the %d of the first hour", len(starts), l.Limit.Permits)
	}
}

func TestServerThatFails(t *testing.T) {
	broken := errors.New("broken")
	way := Way{"broken", func(context.Context, string, Load, func()) error { return broken }}
	if _, err := Run(t.Context(), redistest.Start(t), small, way); !errors.Is(err, broken) {
		t.Errorf("%v, want the server's error", err)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	way := Way{"interrupting", func(ctx context.Context, _ string, _ Load, _ func()) error {
		cancel()
		<-ctx.Done()
		return nil
	}}
	if _, err := Run(ctx, redistest.Start(t), small, way); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the context's error", err)
	}
}
