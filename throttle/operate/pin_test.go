package operate_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// expectPinned checks what a limiter shows, and what a worker that starts may do to it.
func (s *site) expectPinned(l *throttle.Limiter, want bool) {
	s.Helper()
	ctx := s.Context()
	found, err := s.fleet().Inspect(ctx, l.Name())
	if err != nil || len(found) != 1 || found[0].Pinned != want {
		s.Errorf("inspected %+v, %v; want pinned: %v", found, err, want)
	}
	before, err := l.Config(ctx)
	s.check(err)
	r := perHour(before.Permits + 1)
	applied, err := l.ApplyRate(ctx, r)
	s.check(err)
	after, err := l.Config(ctx)
	s.check(err)
	if changed := after.Permits != before.Permits; applied == want || changed == want {
		s.Errorf("a configuration was applied: %v, and the rate went from %v to %v; want pinned: %v", applied, before, after, want)
	}
}

func TestPins(t *testing.T) {
	forEachRedis(t, testPins)
}

func testPins(s *site) {
	ctx, f := s.Context(), s.fleet()
	c := s.client()
	l, other := s.limited(c, "api", perHour(10), 4), s.limited(c, "other", perHour(10), 0)
	s.expectPinned(l, false)
	for range 2 { // also a limiter that is pinned already
		s.check(f.Pin(ctx, "api"))
		s.expectPinned(l, true)
	}
	s.expectPinned(other, false)
	if ok, err := l.UpdateRate(ctx, perHour(30)); !ok || err != nil {
		s.Errorf("UpdateRate of what is pinned: %v, %v", ok, err)
	}
	if n, err := l.AvailablePermits(ctx); n != 26 || err != nil {
		s.Errorf("%d permits available, %v; want the 30 without the 4 that were used", n, err)
	}
	for range 2 {
		s.check(f.Unpin(ctx, "api"))
		s.expectPinned(l, false)
	}
}

// Each Fleet's changes are its own: none takes another's reply for its own.
func TestFleetsPinInTurn(t *testing.T) {
	s := onRedis(t)
	l := s.limited(s.client(), "api", perHour(10), 0)
	mine, yours := s.fleet(), s.fleet()
	for range 3 {
		s.check(mine.Pin(t.Context(), "api"))
		s.expectPinned(l, true)
		s.check(yours.Unpin(t.Context(), "api"))
		s.expectPinned(l, false)
	}
}

// What a change is called for, and what the network repeats late, is done once: it does not undo
// what others did since.
func TestPinsOnce(t *testing.T) {
	changes := map[string][2]func(*operate.Fleet, context.Context, string) error{
		"Pin":   {(*operate.Fleet).Pin, (*operate.Fleet).Unpin},
		"Unpin": {(*operate.Fleet).Unpin, (*operate.Fleet).Pin},
	}
	for name, change := range changes {
		for _, after := range []time.Duration{time.Millisecond, 5 * time.Second, 12 * time.Second, 2 * time.Minute} {
			t.Run(name+" "+after.String(), func(t *testing.T) {
				underFakeTime(t, func(s *site) {
					ctx := s.Context()
					s.limited(s.client(), "api", perHour(10), 0)
					sent := &recorder{}
					rdb := redis.NewClient(s.rdb.Options())
					defer rdb.Close()
					rdb.AddHook(sent)
					s.check(change[0](operate.NewFleet(rdb), ctx, "api"))
					if len(sent.commands) == 0 {
						s.Fatal("no script was sent")
					}
					time.Sleep(time.Millisecond)
					s.check(change[1](s.fleet(), ctx, "api"))
					before := s.rdb.HGetAll(ctx, "api").Val()
					time.Sleep(after)
					for _, command := range sent.commands {
						if err := s.rdb.Do(ctx, command...).Err(); err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
							s.Error(err)
						}
					}
					if pinned := s.rdb.HGet(ctx, "api", "pinned").Val(); pinned != before["pinned"] {
						s.Errorf("pinned is %q, and was %q before the change was repeated", pinned, before["pinned"])
					}
				})
			})
		}
	}
}

// recorder notes the scripts that are sent.
type recorder struct {
	commands [][]any
}

func (r *recorder) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r *recorder) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r *recorder) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			r.commands = append(r.commands, slices.Clone(cmd.Args()))
		}
		return next(ctx, cmd)
	}
}

func TestCannotPin(t *testing.T) {
	server := redistest.New(t)
	s := at(t, server.Addr)
	ctx, f := t.Context(), s.fleet()
	s.limited(s.client(), "api", perHour(10), 0)
	s.check(s.rdb.Set(ctx, "text", "x", 0).Err())
	s.check(s.rdb.HSet(ctx, "user:1", "name", "x").Err())
	ended, cancel := context.WithCancel(ctx)
	cancel()
	both := func(ctx context.Context, name string, want error) {
		t.Helper()
		s.expectError("Pin", f.Pin(ctx, name), want, name)
		s.expectError("Unpin", f.Unpin(ctx, name), want, name)
	}
	both(ctx, "missing", throttle.ErrNotInitialized)
	both(ctx, "user:1", throttle.ErrNotInitialized)
	both(ctx, "text", throttle.ErrWrongType)
	both(ended, "api", context.Canceled)
	if n := s.rdb.Exists(ctx, "missing").Val() + s.rdb.HLen(ctx, "user:1").Val(); n != 1 {
		t.Errorf("what is no limiter was written to")
	}
	for _, name := range []string{"", "a{b", "a\nb", "\xff", strings.Repeat("a", 513)} {
		for what, err := range map[string]error{"Pin": f.Pin(ctx, name), "Unpin": f.Unpin(ctx, name)} {
			var e *throttle.Error
			if !errors.Is(err, throttle.ErrInvalidName) || !errors.As(err, &e) || e.Detail == "" || len(err.Error()) > 1000 {
				t.Errorf("%s(%.20q): %v, want ErrInvalidName that says why", what, name, err)
			}
		}
	}
	server.Stop()
	for what, err := range map[string]error{"Pin": f.Pin(ctx, "api"), "Unpin": f.Unpin(ctx, "api")} {
		var e *throttle.Error
		if !errors.As(err, &e) || e.Limiter != "api" {
			t.Errorf("%s without Redis: %v, want an error that names the limiter", what, err)
		}
	}
}
