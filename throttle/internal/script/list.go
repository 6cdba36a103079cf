package script

import (
	"strconv"
	"time"
)

// Listed is what the hash of a limiter alone tells of it: field by field
// operate.Listed, to which it converts if R is throttle.Rate.
type Listed[R any] struct {
	Name   string
	Rate   R
	Paused time.Duration
	Pinned bool
}

// ListedFields are the fields of the hash whose values DecodeListed reads.
var ListedFields = []string{"rate", "interval", "type", "keepAliveTime", "guard", "smooth", "window", "offset", "pause", "pinned"}

// DecodeListed reads the fields of a hash, as open in log.lua does; false if it is
// not a limiter's. A pause lasts from now, which Redis's clock tells.
func DecodeListed[R Rate[T, W], T, W ~int](name string, fields []any, now time.Time) (l Listed[R], ok bool) {
	number := func(i int) (int64, bool) {
		s, _ := fields[i].(string)
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil
	}
	in := func(unit time.Duration, i int) time.Duration {
		n, _ := number(i)
		return time.Duration(n) * unit
	}
	permits, ok := number(0)
	interval, ok2 := number(1)
	if !ok || !ok2 || permits < 1 || interval < 1 || CheckName(name) != "" {
		return l, false
	}
	c := config{
		permits: permits, interval: in(time.Millisecond, 1), keepAlive: in(time.Millisecond, 3),
		guard: in(time.Microsecond, 4), offset: in(time.Microsecond, 7),
	}
	if _, kept := number(4); !kept || c.guard > c.interval { // configured by a Redisson client
		c.guard = DefaultGuard(c.interval)
	}
	if kind, _ := number(2); kind == 1 {
		c.kind = kind
	}
	smooth, _ := number(5)
	c.smooth = smooth == 1
	c.window, _ = number(6)
	pause, _ := number(8)
	pinned, _ := number(9)
	return Listed[R]{Name: name, Rate: rateOf[R](c), Paused: max(time.UnixMicro(pause).Sub(now), 0), Pinned: pinned == 1}, true
}
