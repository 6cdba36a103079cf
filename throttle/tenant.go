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

// forTenant is the tenant that a Limiter asks for.
type forTenant struct {
	name string
	bad  error // what is wrong with the name; nil: nothing
}

// For returns the same limiter, whose permits are asked for in the name of a
// tenant. Tenants that wait share the limit by weight, over all processes: with
// weights of 5, 3 and 1, of nine permits the first gets five. A tenant weighs 1,
// unless SetWeight says otherwise. It counts how many permits a tenant gets, not
// how many requests. What one tenant does not ask for the others have: a tenant
// that is alone has all of the limit. One that comes is not behind all that the
// others ask for, and has no credit for the time when it asked for nothing.
//
// The limit itself is kept as always, and its log, its rate and its usage are the
// same with and without For. Requests of one tenant in one process are served in
// the order in which they came; processes in which the same tenant waits take
// turns. Jobs of the same limit that have a share in the configuration count for
// their tenants, too.
//
//   - Acquire waits for the tenant's turn, and then as it always does. Whether the
//     turn comes after ctx's deadline it may only know at the deadline.
//   - TryAcquire takes permits that are free now, but not those which others wait
//     for. TryAcquireFor waits for the tenant's turn up to the timeout.
//   - Reserve waits, within maxWait, until the tenant's turn has come near, and
//     takes its place then: a Delay is some tens of milliseconds, and two round
//     trips to Redis, unless the request is for many permits.
//   - Release, and Cancel and Release of a Reservation, give the tenant back what it was
//     charged for the permits.
//
// All other methods do what they do without For.
//
// Each request takes a call to Redis more than without For, which requests of the
// same time share. Limiters without tenants pay nothing. Callers that share the
// limiter and use no For stand in no tenant's turn: they take their places as far
// ahead as an interval, and while they wait, tenants get a part of the limit and
// wait about as long as they do. So use For for all, or for none.
//
// The name of a tenant has 1 to 128 bytes of valid UTF-8 without control
// characters; else all calls that ask for permits return ErrInvalidTenant. A limit
// PerClient is not shared: they return ErrPerClient. A Group with such a limiter is
// ErrInvalidGroup. It makes no Redis call, and may be called for each request.
func (l *Limiter) For(tenant string) *Limiter {
	of := *l
	of.tenant = &forTenant{name: tenant, bad: fair.CheckTenant(tenant)}
	return &of
}

// SetWeight gives a tenant of this limiter a weight, for all processes and for jobs.
// It holds at once, also for requests that wait, until somebody gives the tenant
// another or deletes the limiter; the limiter need not exist yet. `throttle set NAME
// --weight TENANT=WEIGHT` does the same. A weight is from 0.001 to 1,000,000, and may
// be a fraction; anything else is ErrInvalidWeight.
func (l *Limiter) SetWeight(ctx context.Context, tenant string, w float64) error {
	if err := fair.CheckTenant(tenant); err != nil {
		return &Error{Limiter: l.name, Err: ErrInvalidTenant, Detail: err.Error()}
	}
	if err := fair.CheckWeight(w); err != nil {
		return &Error{Limiter: l.name, Err: ErrInvalidWeight, Detail: err.Error()}
	}
	if _, err := l.c.core.Call(ctx, script.Weight, []string{script.WeightsKey(l.name)}, tenant, script.WeightText(w)); err != nil {
		return l.error(err)
	}
	l.c.tenants.Heard(l.name)
	return nil
}

// inTurn waits for the tenant's turn and a place, within wait, endless if that is
// negative, and lets use have what came of that. It says whether the tenant got its permits.
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
