package throttle

import "time"

// usageParts is in how many parts usage knows a span.
const usageParts = 32

// usage is how many permits a process had in the last span of a limit, or in
// one part of it more.
type usage struct {
	span  time.Duration
	since time.Time // when part 0 began
	part  int64     // the present one
	parts [usageParts]int64
	sum   int64
}

// add takes up n permits that were had now.
func (u *usage) add(n int64, span time.Duration, now time.Time) {
	if span != u.span {
		*u = usage{span: span, since: now}
	}
	u.sum += n
	u.parts[u.turn(now)%usageParts] += n
}

// turn drops what was had more than a span ago, and returns the present part.
func (u *usage) turn(now time.Time) int64 {
	part := int64(now.Sub(u.since) / (u.span / usageParts))
	for i := u.part + 1; i <= min(part, u.part+usageParts); i++ {
		u.sum -= u.parts[i%usageParts]
		u.parts[i%usageParts] = 0
	}
	u.part = max(u.part, part)
	return u.part
}

// lately is the sum of it all.
func (u *usage) lately(now time.Time) int64 {
	if u.span > 0 {
		u.turn(now)
	}
	return u.sum
}
