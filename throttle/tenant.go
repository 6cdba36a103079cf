package throttle

import (
	"context"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/arrived"
	"github.com/jobthrottle/jobthrottle/internal/fair"
	"github.com/jobthrottle/jobthrottle/throttle/internal/driver"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
	"github.com/jobthrottle/jobthrottle/throttle/internal/tenants"
)

// forTenant is the tenant in whose name a Limiter asks.
type forTenant struct {
	name string
	bad  error // what is wrong with the name; nil: nothing
}

// For returns the same limiter, but its permits are asked for in the name of a tenant. Tenants
// that wait share the limit by weight, over all processes: with weights of 5, 3 and 1, the first
// gets five of nine permits. A tenant weighs 1, unless [Limiter.SetWeight] says otherwise. Shares
// are counted in permits, not in requests. What one tenant does not ask for, the others get: a
// tenant that is alone gets all of the limit. A tenant that begins to ask does not have to wait
// behind everything that the others ask for, and has no credit for the time in which it asked for
// nothing.
//
// The limit itself is kept as always, and its log, its rate and its usage are the same with and
// without For. Requests of one tenant in one process are served in the order in which they came;
// processes in which the same tenant waits take turns. Jobs of the same limit that have a share
// in the configuration count for their tenants, too.
//
//   - [Limiter.Acquire] waits until the tenant is next, and then as it always does. If the
//     permits come after ctx's deadline, it may find out only at the deadline.
//   - [Limiter.TryAcquire] takes permits that are free now, but not those for which others wait.
//     [Limiter.TryAcquireFor] waits up to the timeout until the tenant is next.
//   - [Limiter.Reserve] waits, within maxWait, until the tenant is nearly next, and reserves the
//     permits then: a Delay is some tens of milliseconds, and two round trips to Redis, unless
//     the request is for many permits.
//   - [Limiter.Release], and Cancel and Release of a [Reservation], take the charge for the
//     permits off the tenant.
//
// All other methods do what they do without For.
//
// Each request makes one more call to Redis than without For; requests that come at the same time
// share it. Limiters without tenants pay nothing. Callers that share the limiter and do not use
// For belong to no tenant: they reserve as far ahead as an interval, and while they wait, tenants
// get a part of the limit and wait about as long as they do. So use For for all, or for none.
//
// The name of a tenant has 1 to 128 bytes of valid UTF-8 without control characters; otherwise
// all calls that ask for permits return [ErrInvalidTenant]. Tenants cannot share a [PerClient]
// limit: these calls return [ErrPerClient]. A [Group] with such a limiter is [ErrInvalidGroup].
// For makes no Redis call, and may be called for each request.
func (l *Limiter) For(tenant string) *Limiter {
	of := *l
	of.tenant = &forTenant{name: tenant, bad: fair.CheckTenant(tenant)}
	return &of
}

// SetWeight gives a tenant of this limiter (see [Limiter.For]) a weight, for all processes and
// for jobs. It takes effect at once, also for requests that wait, and lasts until somebody gives
// the tenant another weight or deletes the limiter. The limiter need not exist yet. `throttle set
// NAME --weight TENANT=WEIGHT` does the same. A weight is from 0.001 to 1,000,000, and may be a
// fraction; anything else is [ErrInvalidWeight]. A name that no tenant can have is
// [ErrInvalidTenant].
func (l *Limiter) SetWeight(ctx context.Context, tenant string, w float64) error {
	if err := fair.CheckTenant(tenant); err != nil {
		return &Error{Limiter: l.name, Err: ErrInvalidTenant, Detail: err.Error()}
	}
	if err := fair.CheckWeight(w); err != nil {
		return &Error{Limiter: l.name, Err: ErrInvalidWeight, Detail: err.Error()}
	}
	if _, err := l.c.core.Call(ctx, script.Weight, script.WeightKeys(l.name), script.WeightArgs(l.name, tenant, w)...); err != nil {
		return l.error(err)
	}
	l.c.tenants.Heard(l.name)
	return nil
}

// asTenant waits until the tenant is next and the permits are reserved, for up to wait (without
// end if that is negative), and passes the result to use. It says whether the tenant got its
// permits.
func (l *Limiter) asTenant(ctx context.Context, ns []int64, wait time.Duration, hold bool, use func(*driver.Pass, *driver.Ticket) (bool, error)) error {
	if bad := l.tenant.bad; bad != nil {
		return &Error{Limiter: l.name, Err: ErrInvalidTenant, Detail: bad.Error()}
	}
	p := l.line.Pass(ctx, ns, wait, hold)
	defer p.Leave()
	if ctx.Err() != nil {
		return p.Interrupted(ctx)
	}
	turn := l.c.tenants.Arrive(tenants.Request{
		Limiter: l.name, Tenant: l.tenant.name, Creates: l.member.Create != "", Permits: ns[0],
		Until: p.Until(), AtOnce: wait == 0, Next: p.Ask,
	})
	granted := false
	defer func() { turn.Done(granted) }()
	arrived.Tell(ctx)
	var ticket *driver.Ticket
	var err error
	switch {
	case turn.Wait(ctx):
		ticket, err = p.Await(ctx)
		turn.Decided()
	case turn.Denied:
		ticket = p.Denied(turn.Answer.Wait)
	default:
		err = p.Refused(turn.Answer)
	}
	if err == nil {
		granted, err = use(p, ticket)
	}
	return err
}

func (l *Limiter) acquireFor(ctx context.Context, ns []int64) error {
	return l.asTenant(ctx, ns, -1, false, func(p *driver.Pass, t *driver.Ticket) (bool, error) {
		err := p.Take(ctx, t)
		return err == nil, err
	})
}

func (l *Limiter) tryFor(ctx context.Context, ns []int64, timeout time.Duration) (ok bool, err error) {
	err = l.asTenant(ctx, ns, max(timeout, 0), true, func(p *driver.Pass, t *driver.Ticket) (bool, error) {
		if !t.OK() {
			return false, nil
		}
		if err := p.Take(ctx, t); err != nil && t.OK() {
			return false, err
		}
		ok = t.OK()
		return ok, nil
	})
	return ok, err
}

func (l *Limiter) reserveFor(ctx context.Context, ns []int64, maxWait time.Duration) (r *Reservation, err error) {
	err = l.asTenant(ctx, ns, max(maxWait, 0), true, func(_ *driver.Pass, t *driver.Ticket) (bool, error) {
		r = &Reservation{ticket: t}
		if t.OK() {
			r.refund = func(n int64) { l.c.tenants.Return(l.name, l.tenant.name, n) }
			r.back = sync.OnceFunc(func() { r.refund(ns[0]) })
		}
		return t.OK(), nil
	})
	return r, err
}
