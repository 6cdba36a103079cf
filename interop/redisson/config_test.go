package redisson_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redisson"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// known are rates of all that Redisson has a word for.
var known = map[string]throttle.Rate{
	"overall":    {Permits: 100, Interval: time.Second},
	"smallest":   {Permits: 1, Interval: time.Millisecond},
	"largest":    {Permits: throttle.MaxPermits, Interval: 365 * 24 * time.Hour},
	"per client": {Type: throttle.PerClient, Permits: 25, Interval: 1500 * time.Millisecond},
	"kept":       {Permits: 7, Interval: time.Minute, KeepAlive: time.Hour},
}

func TestConfigurationIsShared(t *testing.T) {
	q := share(t)
	java, ours := q.java(), q.ours()
	ctx := t.Context()
	set := func(ok bool, err error) error {
		if err == nil && !ok {
			return errors.New("not set")
		}
		return err
	}
	javaSets := map[string]func(l *redisson.Limiter, r redisson.Rate) error{
		"trySetRate": func(l *redisson.Limiter, r redisson.Rate) error { return set(l.TrySetRate(r)) },
		"setRate":    func(l *redisson.Limiter, r redisson.Rate) error { return l.SetRate(r) },
		"updateRate": func(l *redisson.Limiter, r redisson.Rate) error {
			check(t, l.SetRate(redisson.Rate{Permits: 3, Interval: time.Second}))
			return set(l.UpdateRate(r, true))
		},
	}
	oursSets := map[string]func(l *throttle.Limiter, r throttle.Rate) error{
		"TrySetRate": func(l *throttle.Limiter, r throttle.Rate) error { return set(l.TrySetRate(ctx, r)) },
		"SetRate":    func(l *throttle.Limiter, r throttle.Rate) error { return l.SetRate(ctx, r) },
		"UpdateRate": func(l *throttle.Limiter, r throttle.Rate) error {
			check(t, l.SetRate(ctx, throttle.Rate{Permits: 3, Interval: time.Second}))
			return set(l.UpdateRate(ctx, r))
		},
	}
	// Both write the same text into the same fields, which is all that Java reads.
	fields := func(name string) []any {
		got, err := q.rdb.HMGet(ctx, name, "rate", "interval", "type", "keepAliveTime").Result()
		check(t, err)
		return got
	}
	for kind, r := range known {
		var first []any
		same := func(t *testing.T, name string) {
			if first == nil {
				first = fields(name)
			}
			if got := fields(name); !slices.Equal(got, first) {
				t.Errorf("fields %v, want %v", got, first)
			}
		}
		for how, set := range javaSets {
			t.Run(how+" "+kind, func(t *testing.T) {
				name := name(t)
				check(t, set(java.Limiter(name), shared(r)))
				got, err := limiter(t, ours, name).Config(ctx)
				check(t, err)
				if shared(got) != shared(r) {
					t.Errorf("Go reads %+v, Java wrote %+v", got, shared(r))
				}
				if got.Guard <= 0 {
					t.Errorf("guard %v, want the default", got.Guard)
				}
				same(t, name)
			})
		}
		for how, set := range oursSets {
			t.Run(how+" "+kind, func(t *testing.T) {
				name := name(t)
				check(t, set(limiter(t, ours, name), r))
				wanted := shared(r)
				wanted.KeepAlive = 0 // getConfig does not tell
				want(t, "getConfig", wanted)(java.Limiter(name).Config())
				same(t, name)
			})
		}
	}
}

func TestUpdateRateIsSeen(t *testing.T) {
	q := share(t)
	java, ours := q.java(), q.ours()
	ctx := t.Context()
	both := func(t *testing.T, r throttle.Rate) (*redisson.Limiter, *throttle.Limiter) {
		theirs, mine := java.Limiter(name(t)), limiter(t, ours, name(t))
		check(t, mine.SetRate(ctx, r))
		return theirs, mine
	}
	// waits has Go wait for n permits until something is changed. It returns what came of it.
	waits := func(t *testing.T, l *throttle.Limiter, n int64) <-chan error {
		want(t, "TryAcquire", false)(l.TryAcquire(ctx, n))
		r, err := l.Reserve(ctx, n, 24*time.Hour)
		check(t, err)
		if !r.OK() || r.Delay() < time.Minute {
			t.Fatalf("a reservation in %v, want one that is far", r.Delay())
		}
		out := make(chan error, 1)
		go func() { out <- r.Wait(ctx) }()
		return out
	}

	t.Run("Java's by Go", func(t *testing.T) {
		theirs, mine := both(t, rate(10, time.Hour))
		want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 8))
		want(t, "updateRate", true)(theirs.UpdateRate(redisson.Rate{Permits: 20, Interval: time.Hour}, true))
		want[int64](t, "AvailablePermits", 12)(mine.AvailablePermits(ctx))
		want(t, "updateRate", true)(theirs.UpdateRate(redisson.Rate{Permits: 9, Interval: time.Hour}, true))
		want(t, "TryAcquire", false)(mine.TryAcquire(ctx, 2))
		want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 1))
		want(t, "updateRate", true)(theirs.UpdateRate(redisson.Rate{Permits: 9, Interval: time.Hour}, false))
		want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 9))
	})
	t.Run("Java's by Go, another type", func(t *testing.T) {
		theirs, mine := both(t, rate(10, time.Hour))
		want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 8))
		want(t, "updateRate", true)(theirs.UpdateRate(redisson.Rate{PerClient: true, Permits: 10, Interval: time.Hour}, true))
		want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 10))
		want(t, "tryAcquire", true)(theirs.TryAcquire(10, 0))
	})
	t.Run("Go's by Java", func(t *testing.T) {
		theirs, mine := both(t, rate(10, time.Hour))
		want(t, "tryAcquire", true)(theirs.TryAcquire(8, 0))
		want(t, "UpdateRate", true)(mine.UpdateRate(ctx, rate(20, time.Hour)))
		want[int64](t, "availablePermits", 12)(theirs.AvailablePermits())
		want(t, "UpdateRate", true)(mine.UpdateRate(ctx, rate(9, time.Hour)))
		want(t, "tryAcquire", false)(theirs.TryAcquire(2, 0))
		want(t, "tryAcquire", true)(theirs.TryAcquire(1, 0))
	})
	t.Run("raised while Go waits", func(t *testing.T) {
		theirs, mine := both(t, rate(10, time.Hour))
		want(t, "tryAcquire", true)(theirs.TryAcquire(10, 0))
		turn := waits(t, mine, 5)
		want(t, "updateRate", true)(theirs.UpdateRate(redisson.Rate{Permits: 15, Interval: time.Hour}, true))
		check(t, <-turn)
	})
	t.Run("lowered while Go waits", func(t *testing.T) {
		theirs, mine := both(t, rate(10, time.Hour))
		want(t, "tryAcquire", true)(theirs.TryAcquire(10, 0))
		turn := waits(t, mine, 5)
		want(t, "updateRate", true)(theirs.UpdateRate(redisson.Rate{Permits: 4, Interval: time.Hour}, true))
		if err := <-turn; !errors.Is(err, throttle.ErrExceedsRate) {
			t.Errorf("5 of 4 permits: %v", err)
		}
	})
	t.Run("reset while Go waits", func(t *testing.T) {
		theirs, mine := both(t, rate(10, time.Hour))
		want(t, "tryAcquire", true)(theirs.TryAcquire(10, 0))
		turn := waits(t, mine, 5)
		check(t, theirs.SetRate(redisson.Rate{Permits: 20, Interval: time.Hour}))
		check(t, <-turn)
		want[int64](t, "availablePermits", 15)(theirs.AvailablePermits())
	})
	t.Run("deleted while Go waits", func(t *testing.T) {
		theirs, mine := both(t, rate(10, time.Hour))
		want(t, "tryAcquire", true)(theirs.TryAcquire(10, 0))
		turn := waits(t, mine, 5)
		want(t, "delete", true)(theirs.Delete())
		if err := <-turn; !errors.Is(err, throttle.ErrNotInitialized) {
			t.Errorf("a deleted limiter: %v", err)
		}
	})
	t.Run("deleted by Go", func(t *testing.T) {
		theirs, mine := both(t, rate(10, time.Hour))
		want(t, "tryAcquire", true)(theirs.TryAcquire(10, 0))
		want(t, "Delete", true)(mine.Delete(ctx))
		if _, err := theirs.TryAcquire(1, 0); err == nil || !strings.Contains(err.Error(), "not initialized") {
			t.Errorf("a deleted limiter: %v", err)
		}
	})
}

func TestExpiryIsShared(t *testing.T) {
	q := share(t)
	java, ours := q.java(), q.ours()
	ctx := t.Context()
	kept := throttle.Rate{Permits: 10, Interval: time.Second, Guard: -1, KeepAlive: time.Hour}
	expire := map[string]func(theirs *redisson.Limiter, mine *throttle.Limiter) (bool, error){
		"Java's expire": func(theirs *redisson.Limiter, _ *throttle.Limiter) (bool, error) { return theirs.Expire(time.Hour) },
		"Go's Expire":   func(_ *redisson.Limiter, mine *throttle.Limiter) (bool, error) { return mine.Expire(ctx, time.Hour) },
		"Java's keepAlive": func(theirs *redisson.Limiter, _ *throttle.Limiter) (bool, error) {
			return theirs.UpdateRate(shared(kept), true)
		},
		"Go's KeepAlive": func(_ *redisson.Limiter, mine *throttle.Limiter) (bool, error) { return mine.UpdateRate(ctx, kept) },
	}
	use := map[string]func(theirs *redisson.Limiter, mine *throttle.Limiter) (bool, error){
		"Java": func(theirs *redisson.Limiter, _ *throttle.Limiter) (bool, error) { return theirs.TryAcquire(1, 0) },
		"Go":   func(_ *redisson.Limiter, mine *throttle.Limiter) (bool, error) { return mine.TryAcquire(ctx, 1) },
	}
	for how, expire := range expire {
		for who, use := range use {
			t.Run(how+", used by "+who, func(t *testing.T) {
				name := name(t)
				theirs, mine := java.Limiter(name), limiter(t, ours, name)
				keys := []string{name, "{" + name + "}:value", overallLog(name)}
				check(t, mine.SetRate(ctx, rate(10, time.Second)))
				want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 1))
				want(t, how, true)(expire(theirs, mine))
				keeps := strings.HasSuffix(strings.ToLower(how), "keepalive")
				if keeps { // all but over
					for _, key := range keys {
						check(t, q.rdb.PExpire(ctx, key, time.Minute).Err())
					}
				}
				want(t, "used by "+who, true)(use(theirs, mine))
				for _, key := range keys {
					if ttl := q.rdb.PTTL(ctx, key).Val(); ttl <= 0 || keeps && ttl <= time.Minute {
						t.Errorf("%s expires in %v", key, ttl)
					}
				}
			})
		}
	}
}
