package throttle

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// RateType says who shares a limit: [Overall] or [PerClient].
type RateType int

const (
	// Overall means that all Clients of the limiter share one quota.
	Overall RateType = 0
	// PerClient means that each Client has a quota of its own. Clients are told apart by their
	// IDs.
	PerClient RateType = 1
)

// String returns the name used in configuration files: overall or per_client.
func (t RateType) String() string {
	switch t {
	case Overall:
		return "overall"
	case PerClient:
		return "per_client"
	}
	return "RateType(" + strconv.Itoa(int(t)) + ")"
}

// Window says for which stretches of time the limit holds: [Sliding] or [Calendar].
type Window int

const (
	// Sliding is every stretch of Interval, wherever it begins.
	Sliding Window = 0
	// Calendar is the stretches that begin at Offset from UTC midnight, and at each whole
	// Interval before and after that, like billing periods.
	Calendar Window = 1
)

// String returns the name used in configuration files: sliding or calendar.
func (w Window) String() string {
	switch w {
	case Sliding:
		return "sliding"
	case Calendar:
		return "calendar"
	}
	return "Window(" + strconv.Itoa(int(w)) + ")"
}

// MaxPermits is the largest number of permits a [Rate] may have: an entry of the log keeps its
// permits in 32 bits.
const MaxPermits = math.MaxUint32

// maxInterval keeps every time the scripts compute with below 2^53 us, the
// range in which Lua's numbers are whole.
const maxInterval = 365 * 24 * time.Hour

// Rate is the configuration of a limiter: Permits in any Interval.
// It is stored in Redis, so that all clients agree on it.
type Rate struct {
	// Type says whether the fleet shares the permits or each Client has its own.
	Type RateType
	// Permits may be used in every Interval: 1 to MaxPermits.
	Permits int64
	// Interval is a whole number of milliseconds from 1ms to 365 days.
	Interval time.Duration
	// Guard is how late a permit may be used: the log counts permits for Interval + Guard. The
	// package comment says how much of it is the caller's. Zero means 1 % of the interval, at least
	// 3ms and at most 50ms (but never more than a quarter of the interval); negative means none.
	// Guard is at most Interval, and in Calendar windows at most a quarter of it.
	Guard time.Duration
	// Smooth spreads permits evenly: n permits come no earlier than
	// n * (Interval + Guard) / Permits after the grant before them, but permits of one Calendar
	// window keep no distance from those of another. A limit of more than 256 permits may give
	// some earlier, by up to 1/128 of Interval + Guard. It makes up for that after them.
	Smooth bool
	// Window is Sliding (every Interval) or Calendar (fixed ones).
	Window Window
	// Offset moves the beginning of Calendar windows from UTC midnight. It is 0 or more, and less
	// than Interval.
	Offset time.Duration
	// KeepAlive removes a limiter that nobody has used for that long, or for at least 15/16 of
	// it, unless it is paused. Zero keeps the limiter; otherwise KeepAlive is at least Interval.
	KeepAlive time.Duration
}

// ParseRate reads "100/1s", "5/500ms" or "1000/24h": permits, a slash, and an interval as
// [time.ParseDuration] reads it, or a unit alone: 100/s is 100/1s. It returns an overall, sliding
// [Rate]. An error wraps [ErrInvalidRate].
func ParseRate(s string) (Rate, error) {
	permits, interval, found := strings.Cut(s, "/")
	if !found || permits == "" || interval == "" {
		return Rate{}, fmt.Errorf("%w: %q: want PERMITS/INTERVAL, such as 100/1s", ErrInvalidRate, s)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(permits), 10, 64)
	if err != nil {
		return Rate{}, fmt.Errorf("%w: %q: permits %q is not a whole number up to %d", ErrInvalidRate, s, permits, int64(MaxPermits))
	}
	interval = strings.TrimSpace(interval)
	duration := interval
	if interval != "" && interval[0] >= 'a' && interval[0] <= 'z' {
		duration = "1" + interval // 100/s is 100/1s
	}
	d, err := time.ParseDuration(duration)
	if err != nil {
		return Rate{}, fmt.Errorf("%w: %q: interval %q is not a duration such as 500ms, 1s, 1m or 24h", ErrInvalidRate, s, interval)
	}
	r := Rate{Permits: n, Interval: d}
	return r, r.Validate()
}

// String returns the rate as [ParseRate] reads it.
func (r Rate) String() string {
	return strconv.FormatInt(r.Permits, 10) + "/" + shortDuration(r.Interval)
}

// shortDuration drops the zero units that Duration.String appends: 1h0m0s is 1h.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Validate returns an error that wraps [ErrInvalidRate] if no limiter can have this rate. It says
// which field is wrong and what would be right.
func (r Rate) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrInvalidRate}, args...)...)
	}
	switch {
	case r.Type != Overall && r.Type != PerClient:
		return bad("type %d is neither Overall (0) nor PerClient (1)", int(r.Type))
	case r.Permits < 1 || r.Permits > MaxPermits:
		return bad("permits %d: want 1 to %d", r.Permits, int64(MaxPermits))
	case r.Interval < time.Millisecond || r.Interval > maxInterval:
		return bad("interval %v: want 1ms to %v", r.Interval, shortDuration(maxInterval))
	case r.Interval%time.Millisecond != 0:
		return bad("interval %v: want whole milliseconds", r.Interval)
	case r.Guard > r.Interval:
		return bad("guard %v is longer than the interval %v", r.Guard, r.Interval)
	case r.Window != Sliding && r.Window != Calendar:
		return bad("window %d is neither Sliding (0) nor Calendar (1)", int(r.Window))
	case r.Offset != 0 && r.Window != Calendar:
		return bad("offset %v needs a calendar window", r.Offset)
	case r.Offset < 0 || r.Window == Calendar && r.Offset >= r.Interval:
		return bad("offset %v: want 0 up to the interval %v", r.Offset, r.Interval)
	case r.Window == Calendar && 4*r.guard() > r.Interval:
		return bad("guard %v leaves too little of a calendar window of %v: want at most a quarter", r.guard(), r.Interval)
	case r.KeepAlive != 0 && r.KeepAlive < r.Interval:
		return bad("keep-alive %v is shorter than the interval %v", r.KeepAlive, r.Interval)
	}
	return nil
}

// guard is the guard in force.
func (r Rate) guard() time.Duration {
	switch {
	case r.Guard < 0:
		return 0
	case r.Guard > 0:
		return r.Guard.Truncate(time.Microsecond)
	}
	return r.DefaultGuard()
}

// DefaultGuard is the [Rate.Guard] of a Rate with this Interval that sets none.
func (r Rate) DefaultGuard() time.Duration { return script.DefaultGuard(r.Interval) }

// fields is the rate as the scripts take it: rate, interval ms, type, keepAlive ms, guard us,
// smooth, window, offset us.
func (r Rate) fields() []string {
	n := func(x int64) string { return strconv.FormatInt(x, 10) }
	smooth := "0"
	if r.Smooth {
		smooth = "1"
	}
	return []string{n(r.Permits), n(r.Interval.Milliseconds()), n(int64(r.Type)), n(r.KeepAlive.Milliseconds()),
		n(r.guard().Microseconds()), smooth, n(int64(r.Window)), n(r.Offset.Microseconds())}
}
