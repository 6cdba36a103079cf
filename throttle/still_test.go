package throttle

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
	"github.com/jobthrottle/jobthrottle/internal/wire"
)

// If Redis stands still, there is an error in time, whatever the limiter was doing when that
// began, and what Redis grants late is back within 5s of its return.
func TestRedisStandsStill(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]*redis.Options{
		"defaults":       {},
		"one long try":   {MaxRetries: -1, ReadTimeout: time.Minute},
		"heeds deadline": {ContextTimeoutEnabled: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			network := must(wire.New(server))
			defer network.Close()
			o := *opts
			o.Addr = network.Addr
			rdb := redis.NewClient(&o)
			defer rdb.Close()
			b := &bench{T: t, rdb: rdb, begin: time.Now()}
			near := b.clientOf(dial(t, server))
			var all []*stopped
			for state, begin := range stoppedStates {
				s := &stopped{state: state, left: 1000, over: func() {}}
				l := s.limiter(b, b.client(), near)
				s.asks, s.wait = l, func(ctx context.Context) error { return l.Acquire(ctx, 1) }
				begin(b, s, l, near)
				all = append(all, s)
			}
			<-time.After(ms(150)) // what is known of the configurations is no longer fresh
			network.Set(wire.Trouble{Hold: true})
			var wg sync.WaitGroup
			for _, s := range all {
				expect := func(what string, within time.Duration, call func() error) {
					wg.Go(func() {
						begin := time.Now()
						err := call()
						if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > within {
							t.Errorf("%s: %s: %v after %v, want an error that wraps context.DeadlineExceeded within %v", s.state, what, err, took, within)
						}
					})
				}
				expect("TryAcquire", 5*time.Second, func() error { return second(s.asks.TryAcquire(context.Background(), 1)) })
				expect("TryAcquireFor(1s)", ms(1500), func() error { return second(s.asks.TryAcquireFor(context.Background(), 1, time.Second)) })
				expect("Acquire by a deadline", ms(1100), func() error {
					ctx, cancel := context.WithTimeout(b.Context(), time.Second)
					defer cancel()
					return s.wait(ctx)
				})
			}
			wg.Wait()
			for _, s := range all {
				s.over()
			}
			network.Set(wire.Trouble{})
			back := time.Now()
			for _, s := range all {
				for _, l := range s.seen {
					var u Usage
					testkit.Eventually(t, time.Until(back.Add(5*time.Second)), s.state+": all that is not used is back", func() bool {
						u = must(l.Inspect(b.Context()))
						return u.Available == s.left && u.Reserved == 0
					}, func() string {
						return fmt.Sprintf("%d permits are available, want %d, and %d reserved", u.Available, s.left, u.Reserved)
					})
				}
			}
		})
	}
}

// stopped is a limiter, or a group, whose Redis stops.
type stopped struct {
	state string
	asks  interface {
		TryAcquire(ctx context.Context, n int64) (bool, error)
		TryAcquireFor(ctx context.Context, n int64, timeout time.Duration) (bool, error)
	}
	wait func(ctx context.Context) error
	seen []*Limiter // as somebody sees them for whom Redis does not stop
	left int64      // permits of each, in the end
	over func()     // ends what else goes on
}

// limiter adds a limiter, of 1000/1h.
func (s *stopped) limiter(b *bench, c, near *Client) *Limiter {
	name := fmt.Sprintf("%s:%s:%d", b.name(), s.state, len(s.seen))
	seen := must(near.Limiter(name))
	check(b, seen.SetRate(b.Context(), rate("1000/1h")))
	s.seen = append(s.seen, seen)
	return must(c.Limiter(name))
}

// stoppedStates are what a limiter can be doing when its Redis stops.
var stoppedStates = map[string]func(b *bench, s *stopped, l *Limiter, near *Client){
	"fresh": func(*bench, *stopped, *Limiter, *Client) {},
	"used": func(b *bench, s *stopped, l *Limiter, _ *Client) {
		for range 20 {
			check(b, l.Acquire(b.Context(), 1))
		}
		s.left -= 20
	},
	"due": func(b *bench, s *stopped, l *Limiter, _ *Client) { s.wait = must(l.Reserve(b.Context(), 1, 0)).Wait },
	"paused": func(b *bench, s *stopped, l *Limiter, _ *Client) {
		check(b, s.seen[0].Pause(b.Context(), time.Hour))
		b.expectTry(l, 1, false)
		s.over = func() { check(b, s.seen[0].Resume(b.Context())) }
	},
	"a group": func(b *bench, s *stopped, l *Limiter, near *Client) {
		g := must(l.c.Group(l, s.limiter(b, l.c, near)))
		check(b, g.Acquire(b.Context(), 7))
		s.asks, s.wait, s.left = g, func(ctx context.Context) error { return g.Acquire(ctx, 1) }, s.left-7
	},
	"behind 20 waiters": func(b *bench, s *stopped, l *Limiter, _ *Client) {
		check(b, l.Acquire(b.Context(), 980))
		ctx, leave := context.WithCancel(b.Context())
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := l.Acquire(ctx, 30); !errors.Is(err, context.Canceled) {
					b.Errorf("%s: a waiter: %v", s.state, err)
				}
			})
		}
		testkit.Eventually(b, 5*time.Second, "20 have reservations", func() bool { return must(s.seen[0].Inspect(b.Context())).Reserved == 600 })
		s.left = 20
		s.over = func() {
			leave()
			wg.Wait()
		}
	},
}
