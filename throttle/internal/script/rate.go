package script

import "time"

// Rate is the type into which a limiter's configuration is read: throttle.Rate, which this
// package cannot name, with its RateType as T and its Window as W.
type Rate[T, W ~int] interface {
	~struct {
		Type      T
		Permits   int64
		Interval  time.Duration
		Guard     time.Duration
		Smooth    bool
		Window    W
		Offset    time.Duration
		KeepAlive time.Duration
	}
}

// config is a limiter's configuration as Redis has it: type and window are the
// numbers of throttle.RateType and throttle.Window.
type config struct {
	permits                            int64
	interval, guard, offset, keepAlive time.Duration
	kind, window                       int64
	smooth                             bool
}

func rateOf[R Rate[T, W], T, W ~int](c config) R {
	if c.guard == 0 {
		c.guard = -1 // none; zero would be read as the default
	}
	return R{
		Type: T(c.kind), Permits: c.permits, Interval: c.interval, Guard: c.guard,
		Smooth: c.smooth, Window: W(c.window), Offset: c.offset, KeepAlive: c.keepAlive,
	}
}

const (
	minGuard = 3 * time.Millisecond
	maxGuard = 50 * time.Millisecond
)

// DefaultGuard is the guard of a limiter whose configuration has none, as in fields.lua. 1 % of
// the interval is a compromise between the cost of a guard and how late schedulers and garbage
// collectors are.
func DefaultGuard(interval time.Duration) time.Duration {
	g := min(max(interval/100, minGuard), maxGuard)
	return min(g, interval/4).Truncate(time.Microsecond)
}
