package throttle

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/driver"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Limiter lets at most [Rate.Permits] permits be used in any [Rate.Interval], over all processes
// that use its name in the same Redis (or, [PerClient], for each [Client]). Most callers want
// [Limiter.Acquire], which waits until it gets its permits.
//
// In every interval at most Permits are used, counted at the time when Acquire returns. Waiters
// are served in the order in which they asked, across processes; small requests do not starve a
// request for many permits. Only Redis's clock counts. A denial is a value; an error means that
// nothing was decided. While Redis is in trouble, calls that may wait go on waiting, and calls
// that may not wait return the error. Nothing is granted without Redis.
//
// A Limiter is safe for concurrent use, and cheap: it holds no connection.
type Limiter struct {
	c      *Client
	name   string
	member driver.Member
	line   *driver.Entry
	tenant *forTenant // nil: it asks for no tenant
}

// Name is the limiter's name, and the key of its configuration in Redis.
func (l *Limiter) Name() string { return l.name }

func (l *Limiter) error(err error) error {
	return &Error{Limiter: l.name, Err: err}
}

// one is the cost of a request at a single limiter.
func (l *Limiter) one(n int64) ([]int64, error) {
	if n < 1 {
		return nil, &Error{Limiter: l.name, Err: ErrInvalidPermits, Detail: strconv.FormatInt(n, 10) + ", want at least 1"}
	}
	return []int64{n}, nil
}

// TryAcquire takes n permits if they are free now, and reports whether it did. ([Limiter.Reserve]
// with a maxWait of 0 does the same, and its denial says when to ask again.) If Redis does not
// answer within 4s, it returns an error that wraps [context.DeadlineExceeded]; permits that come
// later go back.
func (l *Limiter) TryAcquire(ctx context.Context, n int64) (bool, error) {
	return l.TryAcquireFor(ctx, n, 0)
}

// TryAcquireFor takes n permits if they are due within timeout. It returns false as soon as it is
// certain that they are not, often at once. If Redis has not decided within timeout, it returns
// an error that wraps [context.DeadlineExceeded]: a timeout is useful only if it is longer than a
// round trip to Redis.
func (l *Limiter) TryAcquireFor(ctx context.Context, n int64, timeout time.Duration) (bool, error) {
	ns, err := l.one(n)
	if err != nil {
		return false, err
	}
	if l.tenant != nil {
		return l.tryFor(ctx, ns, timeout)
	}
	return l.line.Try(ctx, ns, timeout)
}

// Acquire waits for n permits and takes them. It returns nil when they may be used, which should
// happen at once. It returns [ErrExceedsDeadline], without waiting, if they would come after
// ctx's deadline: in an [*Error] whose Wait says how long the wait would have been. If ctx ends
// first, it gives the reservation back and returns ctx's error, wrapped. More permits than the
// rate ever gives at once are [ErrExceedsRate], and a limiter without a rate is
// [ErrNotInitialized].
func (l *Limiter) Acquire(ctx context.Context, n int64) error {
	ns, err := l.one(n)
	if err != nil {
		return err
	}
	if l.tenant != nil {
		return l.acquireFor(ctx, ns)
	}
	return l.line.Acquire(ctx, ns)
}

// Reserve reserves n permits that are due within maxWait (and before ctx's deadline). The
// [Reservation] says whether it did and how long it is until then. A Reservation that is neither
// waited for nor cancelled counts as used, and costs nothing more once it was due.
//
// No reservation lies further ahead than the horizon. The horizon is the interval (at least 1 s)
// plus twice the time that the limit needs to give n permits. If the permits are due later than
// that, but within maxWait, Reserve waits: it returns when they can be reserved.
func (l *Limiter) Reserve(ctx context.Context, n int64, maxWait time.Duration) (*Reservation, error) {
	ns, err := l.one(n)
	if err != nil {
		return nil, err
	}
	if l.tenant != nil {
		return l.reserveFor(ctx, ns, maxWait)
	}
	return reservation(l.line.Reserve(ctx, ns, maxWait))
}

// Release gives back n permits that were acquired and not used. They come off the oldest grants
// that still count, and never exceed what was taken. Zero does nothing; a negative number is
// [ErrInvalidPermits].
//
// Release only what was acquired within the last Interval, or, in [Calendar] windows, in this
// window. Older permits do not count any more: releasing them would free those of others, and the
// limit would be exceeded.
func (l *Limiter) Release(ctx context.Context, n int64) error {
	ns, err := releasable([]string{l.name}, []int64{n})
	if err != nil || ns == nil {
		return err
	}
	err = l.line.Release(ctx, ns)
	if err == nil && l.tenant != nil && l.tenant.bad == nil {
		l.c.tenants.Return(l.name, l.tenant.name, ns[0])
	}
	return err
}

// releasable returns the permits of each limiter that may be given back, nil if there are none.
func releasable(names []string, ns []int64) (bounded []int64, err error) {
	some := false
	for i, n := range ns {
		if n < 0 {
			return nil, &Error{Limiter: names[i], Err: ErrInvalidPermits, Detail: strconv.FormatInt(n, 10) + " to release"}
		}
		some = some || n > 0
		bounded = append(bounded, min(n, MaxPermits))
	}
	if !some {
		return nil, nil
	}
	return bounded, nil
}

// TrySetRate sets the rate if the limiter has none, and reports whether it did. The error is
// [ErrInvalidRate] if no limiter can have r, or if the configuration in Redis makes no sense, and
// [ErrWrongType] if a key of the limiter holds something else.
func (l *Limiter) TrySetRate(ctx context.Context, r Rate) (bool, error) {
	return l.setRate(ctx, "try", r)
}

// SetRate sets the rate and forgets all usage, for every client. The error is [ErrInvalidRate] if
// no limiter can have r, and [ErrWrongType] if the key of the limiter's name holds something else.
// Its other keys are removed if they hold something else.
func (l *Limiter) SetRate(ctx context.Context, r Rate) error {
	_, err := l.setRate(ctx, "set", r)
	return err
}

// UpdateRate changes the rate and keeps the usage, so that a lower rate holds at once and a
// higher one adds only the difference. A change of Type forgets the usage. If the limiter has no
// rate, it returns false and changes nothing. Waiters of all processes ask for their reservations
// again. Its errors are those of [Limiter.SetRate].
func (l *Limiter) UpdateRate(ctx context.Context, r Rate) (bool, error) {
	return l.setRate(ctx, "update", r)
}

// ApplyRate is what a configuration file does at start: it creates the limiter, or updates it and
// keeps its usage, unless an operator has pinned it. It reports whether the limiter now has this
// rate. A limiter that was adaptive is adaptive no longer: see [Limiter.ApplyAdapt]. Its errors
// are those of [Limiter.SetRate].
func (l *Limiter) ApplyRate(ctx context.Context, r Rate) (bool, error) {
	return l.setRate(ctx, "apply", r)
}

func (l *Limiter) setRate(ctx context.Context, mode string, r Rate, more ...any) (bool, error) {
	if err := r.Validate(); err != nil {
		return false, l.error(err)
	}
	args := []any{mode}
	for _, f := range r.fields() {
		args = append(args, f)
	}
	args = append(args, more...)
	reply, err := l.line.Change(ctx, script.Set, args...)
	if err != nil {
		return false, l.error(err)
	}
	n, err := script.Int(reply)
	if err != nil {
		return false, l.error(err)
	}
	l.c.core.Changed(l.name)
	return n == 1, nil
}

// Pause lets nobody acquire for d from now, in any process: the API said Retry-After. If a longer
// pause is in force, it stays. Reservations that were due earlier are asked for again. Redisson
// clients do not see pauses. The error is [ErrNotInitialized] if the limiter has no rate and is
// not from [Client.LimiterWithRate], and [ErrInvalidRate] if its configuration in Redis makes no
// sense.
func (l *Limiter) Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if d > maxInterval {
		d = maxInterval
	}
	return l.pause(ctx, max(d.Microseconds(), 1))
}

// Resume ends a pause, in all processes. Its errors are those of [Limiter.Pause].
func (l *Limiter) Resume(ctx context.Context) error { return l.pause(ctx, 0) }

func (l *Limiter) pause(ctx context.Context, us int64) error {
	return l.must(l.line.Change(ctx, script.Pause, us, l.member.Create))
}

// must reads the reply of a script that changes a limiter which has to exist.
func (l *Limiter) must(reply any, err error) error {
	if err != nil {
		return l.error(err)
	}
	n, err := script.Int(reply)
	switch {
	case err != nil:
		return l.error(err)
	case n < 0:
		return l.error(ErrNotInitialized)
	}
	l.c.core.Changed(l.name)
	return nil
}

// Expire removes the limiter and all its data after d, unless its KeepAlive renews it when it is
// used. It returns false if there is no such limiter. Less than 1ms is an error.
func (l *Limiter) Expire(ctx context.Context, d time.Duration) (bool, error) {
	if d < time.Millisecond {
		return false, l.error(fmt.Errorf("expiry %v: want at least 1ms", d))
	}
	return l.expire(ctx, d.Milliseconds())
}

// ClearExpire undoes [Limiter.Expire] and [Rate.KeepAlive]: the limiter stays. It returns false
// if there is no such limiter, or if it would not expire.
func (l *Limiter) ClearExpire(ctx context.Context) (bool, error) { return l.expire(ctx, 0) }

func (l *Limiter) expire(ctx context.Context, ms int64) (bool, error) {
	return l.did(l.line.Change(ctx, script.Expire, ms))
}

// Delete removes the limiter and forgets all usage. It returns false if there is no such limiter.
// Its waiters get [ErrNotInitialized], or create it again if they have it from
// [Client.LimiterWithRate].
func (l *Limiter) Delete(ctx context.Context) (bool, error) {
	done, err := l.did(l.line.Change(ctx, script.Delete))
	if err == nil {
		l.c.core.Changed(l.name)
	}
	return done, err
}

func (l *Limiter) did(reply any, err error) (bool, error) {
	if err != nil {
		return false, l.error(err)
	}
	n, err := script.Int(reply)
	if err != nil {
		return false, l.error(err)
	}
	return n == 1, nil
}
