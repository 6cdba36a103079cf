package line

import "time"

// meterParts is into how many parts a meter divides a span.
const meterParts = 32

// meter is how many permits a process got in the last span of a limit, or in a time that is
// shorter by up to one part.
type meter struct {
	span  time.Duration
	since Local // when part 0 began
	part  int64 // the present one
	parts [meterParts]int64
	sum   int64
}

// add records n permits that were handed out now.
func (u *meter) add(n int64, span time.Duration, now Local) {
	if span != u.span {
		*u = meter{span: span, since: now}
	}
	u.sum += n
	u.parts[u.advance(now)%meterParts] += n
}

// advance drops the parts that began before the last span. It returns the number of the
// present part.
func (u *meter) advance(now Local) int64 {
	part := int64(now.Sub(u.since) / (u.span / meterParts))
	for i := u.part + 1; i <= min(part, u.part+meterParts); i++ {
		u.sum -= u.parts[i%meterParts]
		u.parts[i%meterParts] = 0
	}
	u.part = max(u.part, part)
	return u.part
}

// lately is the sum of all parts.
func (u *meter) lately(now Local) int64 {
	if u.span > 0 {
		u.advance(now)
	}
	return u.sum
}
