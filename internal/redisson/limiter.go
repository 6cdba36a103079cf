package redisson

import "time"

// Rate is what Redisson stores about a limiter's configuration. Times are whole milliseconds.
type Rate struct {
	PerClient bool
	Permits   int64
	Interval  time.Duration
	KeepAlive time.Duration // zero: none. Redisson writes it, but cannot read it back
}

func (r Rate) in(c command) command {
	c.PerClient, c.Permits, c.Interval, c.KeepAlive = r.PerClient, r.Permits, r.Interval.Milliseconds(), r.KeepAlive.Milliseconds()
	return c
}

// Limiter is an RRateLimiter in a Peer, with its methods under their own names. An exception
// there is an error here that quotes it.
type Limiter struct {
	p    *Peer
	name string
}

func (l *Limiter) do(c command) (reply, error) {
	c.Limiter = l.name
	return l.p.do(c)
}

func (l *Limiter) done(c command) (bool, error) {
	r, err := l.do(c)
	return r.Done, err
}

// TrySetRate is trySetRate: it sets the rate of a limiter that has none.
func (l *Limiter) TrySetRate(r Rate) (bool, error) {
	return l.done(r.in(command{Command: "trySetRate"}))
}

// SetRate is setRate, which also deletes what was used.
func (l *Limiter) SetRate(r Rate) error {
	_, err := l.do(r.in(command{Command: "setRate"}))
	return err
}

// UpdateRate is updateRate, for a limiter that has a rate.
func (l *Limiter) UpdateRate(r Rate, keepState bool) (bool, error) {
	return l.done(r.in(command{Command: "updateRate", KeepState: keepState}))
}

// Config is getConfig, which has no KeepAlive.
func (l *Limiter) Config() (Rate, error) {
	r, err := l.do(command{Command: "getConfig"})
	return Rate{
		PerClient: r.Rate.PerClient,
		Permits:   r.Rate.Permits,
		Interval:  time.Duration(r.Rate.Interval) * time.Millisecond,
	}, err
}

// AvailablePermits is availablePermits.
func (l *Limiter) AvailablePermits() (int64, error) {
	r, err := l.do(command{Command: "availablePermits"})
	return r.Permits, err
}

// TryAcquire is tryAcquire with a timeout, or without one if that is zero.
func (l *Limiter) TryAcquire(n int64, timeout time.Duration) (bool, error) {
	return l.done(command{Command: "tryAcquire", Permits: n, Timeout: timeout.Milliseconds()})
}

// Acquire is acquire: it waits as long as necessary.
func (l *Limiter) Acquire(n int64) error {
	_, err := l.do(command{Command: "acquire", Permits: n})
	return err
}

// Release is release: it returns permits.
func (l *Limiter) Release(n int64) error {
	_, err := l.do(command{Command: "release", Permits: n})
	return err
}

// Delete is delete.
func (l *Limiter) Delete() (bool, error) { return l.done(command{Command: "delete"}) }

// Expire is expire.
func (l *Limiter) Expire(d time.Duration) (bool, error) {
	return l.done(command{Command: "expire", Timeout: d.Milliseconds()})
}

// ClearExpire is clearExpire.
func (l *Limiter) ClearExpire() (bool, error) { return l.done(command{Command: "clearExpire"}) }
