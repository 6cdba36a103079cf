package script

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Listed is what the hash of a limiter alone says about it. Its fields are those of
// operate.Listed, to which it converts if R is throttle.Rate.
type Listed[R any] struct {
	Name   string
	Rate   R
	Paused time.Duration
	Pinned bool
	Err    error
}

// ListedFields are the fields of the hash whose values DecodeListed reads.
var ListedFields = []string{"rate", "interval", "type", "keepAliveTime", "guard", "smooth", "window", "offset", "epoch", "pause", "pinned", "seal"}

// DecodeListed reads the fields of a hash, as open in log.lua does; false if the hash is not a
// limiter's. How long a pause lasts is counted from now, a time of Redis's clock. A hash is a
// limiter's if it has a seal, or a rate and an interval above zero, as a Redisson client writes
// them. If the fields of such a hash make no sense, that is an error.
func DecodeListed[R Rate[T, W], T, W ~int](name string, fields []any, now time.Time) (l Listed[R], ok bool) {
	if CheckName(name) != "" {
		return l, false
	}
	text := func(i int) string { s, _ := fields[i].(string); return s }
	l = Listed[R]{Name: name}
	c, pause, err := readFields(fields, now)
	if err != nil {
		l.Err = err
		positive := func(i int) bool { n, ok := wholeNumber(text(i)); return ok && n >= 1 }
		return l, fields[0] != nil && text(11) != "" || positive(0) && positive(1)
	}
	l.Rate, l.Pinned = rateOf[R](c), text(10) == "1"
	l.Paused = max(time.UnixMicro(pause).Sub(now), 0)
	return l, true
}

// Bounds of fields.lua.
const (
	longest = 31536000000      // of intervals, in ms
	latest  = 4503599627370496 // of times, in us
)

// readFields does what read of fields.lua does: every number is within its bounds, or the error
// names the first one that is not. Both read the fields in the same order.
func readFields(fields []any, now time.Time) (c config, pause int64, err error) {
	number := func(name string, i int, low, high, fallback int64) int64 {
		s, there := fields[i].(string)
		if !there && fallback != none {
			return fallback
		}
		n, ok := wholeNumber(s)
		if there && ok && n >= float64(low) && n <= float64(high) {
			return int64(n)
		}
		if err == nil {
			err = BadField(name)
		}
		return 0
	}
	c.permits = number("rate", 0, 1, math.MaxUint32, none)
	interval := number("interval", 1, 1, longest, none) // in ms
	c.kind = number("type", 2, 0, 1, 0)
	keepAlive := number("keepAliveTime", 3, 0, 100*longest, 0)
	c.smooth = number("smooth", 5, 0, 1, 0) == 1
	c.window = number("window", 6, 0, 1, 0)
	number("epoch", 8, 0, latest, 0)
	pause = number("pause", 9, 0, now.UnixMicro()+3000*longest, 0)
	guard := number("guard", 4, 0, 1000*longest, -1) // in us
	offset := number("offset", 7, 0, 1000*longest, 0)

	shown := func(i int) string { s, _ := fields[i].(string); return s }
	kind := shown(2)
	if fields[2] == nil {
		kind = "0"
	}
	theirs := !strings.HasPrefix(shown(11), shown(0)+":"+shown(1)+":"+kind+":")
	c.interval = time.Duration(interval) * time.Millisecond
	whole := interval * 1000
	if guard < 0 || theirs && guard > whole { // configured by a Redisson client
		guard = DefaultGuard(c.interval).Microseconds()
	}
	if theirs && whole > 0 {
		offset %= whole
	}
	switch {
	case err != nil:
	case guard > whole || c.window == 1 && 4*guard > whole:
		err = BadField("guard")
	case offset > 0 && offset >= whole:
		err = BadField("offset")
	}
	c.keepAlive = time.Duration(keepAlive) * time.Millisecond
	c.guard, c.offset = time.Duration(guard)*time.Microsecond, time.Duration(offset)*time.Microsecond
	return c, pause, err
}

// none as a fallback says that the field has to be there.
const none = math.MinInt64

// wholeNumber reads a whole number as the scripts do.
func wholeNumber(s string) (float64, bool) {
	s = strings.TrimSpace(s)
	n, err := strconv.ParseFloat(s, 64)
	if err != nil {
		hex, hexErr := strconv.ParseUint(s, 0, 64)
		if hexErr != nil || !strings.HasPrefix(strings.ToLower(s), "0x") {
			return 0, false
		}
		n = float64(hex)
	}
	return n, n == math.Floor(n)
}
