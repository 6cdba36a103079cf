package redisson_test

import (
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redisson"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// What Java knows nothing of binds Go alone.
func TestWhatJavaDoesNotSee(t *testing.T) {
	q := share(t)
	java, ours := q.java(), q.ours()
	ctx := t.Context()
	both := func(t *testing.T, r throttle.Rate) (*redisson.Limiter, *throttle.Limiter) {
		theirs, mine := java.Limiter(name(t)), limiter(t, ours, name(t))
		check(t, mine.SetRate(ctx, r))
		return theirs, mine
	}

	t.Run("pause", func(t *testing.T) {
		theirs, mine := both(t, rate(10, time.Hour))
		check(t, mine.Pause(ctx, time.Hour))
		want(t, "TryAcquire", false)(mine.TryAcquire(ctx, 1))
		want[int64](t, "availablePermits", 10)(theirs.AvailablePermits())
		want(t, "tryAcquire", true)(theirs.TryAcquire(1, 0))
		want(t, "updateRate", true)(theirs.UpdateRate(shared(rate(20, time.Hour)), true))
		want(t, "TryAcquire, Java having changed the rate", false)(mine.TryAcquire(ctx, 1))
		check(t, mine.Resume(ctx))
		want[int64](t, "AvailablePermits", 19)(mine.AvailablePermits(ctx))
	})
	t.Run("guard", func(t *testing.T) {
		r := rate(10, time.Hour)
		r.Guard = time.Hour
		theirs, mine := both(t, r)
		want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 10))
		q.age(overallLog(name(t)), 90*time.Minute)
		want(t, "TryAcquire within the guard", false)(mine.TryAcquire(ctx, 1))
		want(t, "tryAcquire within the guard", true)(theirs.TryAcquire(4, 0))
		// Java has dropped the entries that the guard was for.
		want(t, "TryAcquire, once Java has been there", true)(mine.TryAcquire(ctx, 6))
	})
	t.Run("smooth", func(t *testing.T) {
		r := rate(10, time.Hour)
		r.Smooth = true
		theirs, mine := both(t, r)
		want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 1))
		want(t, "TryAcquire at once again", false)(mine.TryAcquire(ctx, 1))
		want(t, "tryAcquire at once again", true)(theirs.TryAcquire(9, 0))
	})
	t.Run("group", func(t *testing.T) {
		theirs, mine := both(t, rate(10, time.Hour))
		account := limiter(t, ours, name(t)+":account")
		check(t, account.SetRate(ctx, rate(5, time.Hour)))
		group, err := ours.Group(mine, account)
		check(t, err)
		want(t, "TryAcquire of both", true)(group.TryAcquire(ctx, 3))
		want[int64](t, "availablePermits of the first", 7)(theirs.AvailablePermits())
		want[int64](t, "availablePermits of the second", 2)(java.Limiter(account.Name()).AvailablePermits())
		want(t, "tryAcquire of the first alone", true)(theirs.TryAcquire(5, 0))
		want[int64](t, "availablePermits of the second", 2)(java.Limiter(account.Name()).AvailablePermits())
		want(t, "TryAcquire of both", true)(group.TryAcquire(ctx, 2))
		want(t, "TryAcquire of both", false)(group.TryAcquire(ctx, 1))
	})
	t.Run("pin", func(t *testing.T) {
		theirs, mine := both(t, rate(10, time.Hour))
		check(t, operate.NewFleet(q.rdb).Pin(ctx, mine.Name()))
		want(t, "ApplyRate", false)(mine.ApplyRate(ctx, rate(20, time.Hour)))
		want(t, "updateRate", true)(theirs.UpdateRate(shared(rate(30, time.Hour)), true))
		want[int64](t, "AvailablePermits", 30)(mine.AvailablePermits(ctx))
	})
	t.Run("reservations are permits used", func(t *testing.T) {
		theirs, mine := both(t, rate(10, time.Hour))
		want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 4))
		reservation, err := mine.Reserve(ctx, 8, 24*time.Hour)
		check(t, err)
		want[int64](t, "AvailablePermits, the reservation not to be delayed", 2)(mine.AvailablePermits(ctx))
		want[int64](t, "availablePermits", -2)(theirs.AvailablePermits())
		want(t, "tryAcquire", false)(theirs.TryAcquire(1, 0))
		want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 2))
		reservation.Cancel()
		want[int64](t, "availablePermits", 4)(theirs.AvailablePermits())
	})
}

// What Java does past the log, or past what it can know of.
func TestWhatJavaLeavesBehind(t *testing.T) {
	q := share(t)
	java, ours := q.java(), q.ours()
	ctx := t.Context()

	t.Run("release raises the counter, not the log", func(t *testing.T) {
		theirs, mine := java.Limiter(name(t)), limiter(t, ours, name(t))
		check(t, mine.SetRate(ctx, rate(10, time.Hour)))
		want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 1))
		want(t, "tryAcquire", true)(theirs.TryAcquire(9, 0))
		check(t, theirs.Release(4))
		want[int64](t, "availablePermits", 4)(theirs.AvailablePermits())
		want[int64](t, "AvailablePermits, by the log", 0)(mine.AvailablePermits(ctx))
		want(t, "TryAcquire, by the counter", true)(mine.TryAcquire(ctx, 1))
		want(t, "TryAcquire of a client that knows nothing yet", false)(limiter(t, q.ours(), name(t)).TryAcquire(ctx, 1))
	})
	t.Run("a reset to the same rate drops reservations unheard", func(t *testing.T) {
		theirs, mine := java.Limiter(name(t)), limiter(t, ours, name(t))
		check(t, mine.SetRate(ctx, rate(10, time.Hour)))
		want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 10))
		reservation, err := mine.Reserve(ctx, 5, 24*time.Hour)
		check(t, err)
		check(t, theirs.SetRate(redisson.Rate{Permits: 10, Interval: time.Hour}))
		want[int64](t, "availablePermits", 10)(theirs.AvailablePermits())
		if !reservation.OK() || reservation.Delay() < time.Minute {
			t.Errorf("the reservation is gone: in %v", reservation.Delay())
		}
		reservation.Cancel() // gives nothing back: there is nothing
		want[int64](t, "AvailablePermits", 10)(mine.AvailablePermits(ctx))
	})
	t.Run("a reset per client is the client's own", func(t *testing.T) {
		r := rate(10, time.Hour)
		r.Type = throttle.PerClient
		theirs, mine := java.Limiter(name(t)), limiter(t, ours, name(t))
		check(t, mine.SetRate(ctx, r))
		want(t, "tryAcquire", true)(theirs.TryAcquire(4, 0))
		want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 3))
		check(t, theirs.SetRate(shared(r)))
		want[int64](t, "availablePermits after Java's", 10)(theirs.AvailablePermits())
		want[int64](t, "AvailablePermits after Java's", 7)(mine.AvailablePermits(ctx))
		want(t, "tryAcquire", true)(theirs.TryAcquire(4, 0))
		check(t, mine.SetRate(ctx, r))
		want[int64](t, "availablePermits after Go's", 6)(theirs.AvailablePermits())
		want[int64](t, "AvailablePermits after Go's", 10)(mine.AvailablePermits(ctx))
	})
}
