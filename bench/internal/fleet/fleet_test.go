package fleet

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// every is a member whose acquires take that long.
func every(d time.Duration, closed *atomic.Int64) Member {
	return Member{
		Acquire: func(ctx context.Context, _ int64) error {
			timer := time.NewTimer(d)
			defer timer.Stop()
			select {
			case <-timer.C:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		Close: func() error { closed.Add(1); return nil },
	}
}

// run lets a fleet of its own work.
func run(ctx context.Context, w Work, join func(client int) (Member, error)) ([]Use, error) {
	f, err := Join(w, join)
	if err != nil {
		return nil, err
	}
	uses, err := f.Work(ctx)
	return uses, errors.Join(err, f.Close())
}

func TestWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int64
		w := Work{Clients: 2, Goroutines: 3, Length: 1050 * time.Millisecond, Cost: func(client, goroutine int) int64 {
			return int64(10*client + goroutine)
		}}
		uses, err := run(t.Context(), w, func(int) (Member, error) { return every(100*time.Millisecond, &closed), nil })
		if err != nil {
			t.Fatal(err)
		}
		if len(uses) != 2*3*10 {
			t.Errorf("%d uses, want 60", len(uses))
		}
		for i, u := range uses {
			if want := time.Duration(i/6+1) * 100 * time.Millisecond; u.At != want {
				t.Fatalf("use %d at %v, want %v", i, u.At, want)
			}
			if want := int32(10*u.Client + u.Goroutine); u.Permits != want {
				t.Fatalf("use %d of client %d, goroutine %d: %d permits, want %d", i, u.Client, u.Goroutine, u.Permits, want)
			}
		}
		if closed.Load() != 2 {
			t.Errorf("%d clients closed, want 2", closed.Load())
		}
	})
}

func TestWorkAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int64
		w := Work{Clients: 1, Goroutines: 1, Length: time.Second, Every: 300 * time.Millisecond}
		uses, err := run(t.Context(), w, func(int) (Member, error) { return every(10*time.Millisecond, &closed), nil })
		if err != nil {
			t.Fatal(err)
		}
		for i, u := range uses {
			if want := time.Duration(i)*w.Every + 10*time.Millisecond; u.At != want {
				t.Errorf("use %d at %v, want %v", i, u.At, want)
			}
		}
		if len(uses) != 4 {
			t.Errorf("%d uses, want 4", len(uses))
		}
	})
}

func TestWorkFails(t *testing.T) {
	broken := errors.New("broken")
	w := Work{Clients: 2, Goroutines: 2, Length: time.Hour}
	tests := []struct {
		name   string
		join   func(client int, good Member) (Member, error)
		closed int64
		text   string
	}{
		{"a client that cannot be made", func(client int, good Member) (Member, error) {
			if client == 1 {
				return Member{}, broken
			}
			return good, nil
		}, 1, "client 1"},
		{"an acquire that fails while there is time", func(client int, good Member) (Member, error) {
			if client == 1 {
				good.Acquire = func(context.Context, int64) error { return broken }
			}
			return good, nil
		}, 2, "client 1"},
		{"a client that cannot be closed", func(_ int, good Member) (Member, error) {
			end := good.Close
			good.Close = func() error { return errors.Join(broken, end()) }
			return good, nil
		}, 2, "broken"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var closed atomic.Int64
				good := every(time.Minute, &closed)
				_, err := run(t.Context(), w, func(client int) (Member, error) { return tt.join(client, good) })
				if !errors.Is(err, broken) || !strings.Contains(err.Error(), tt.text) {
					t.Errorf("%v, want an error with %q", err, tt.text)
				}
				if closed.Load() != tt.closed {
					t.Errorf("%d clients closed, want %d", closed.Load(), tt.closed)
				}
			})
		})
	}
}

func TestWorkInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var closed atomic.Int64
		w := Work{Clients: 1, Goroutines: 1, Length: time.Hour}
		_, err := run(ctx, w, func(int) (Member, error) { return every(time.Second, &closed), nil })
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, want the error of the context", err)
		}
	})
}
