package line

import (
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

const (
	// stockShare bounds what a client may hold in stock: one part in so many
	// of the limit.
	stockShare = 16
	// stockFrom is how many permits must have been used within half a guard for a stock to be
	// worth it.
	stockFrom = 4
	// keepsFor is for how long a client keeps what nobody has used of a stock, if its next call
	// comes no sooner: until then it may be used, or go back with other things.
	keepsFor = time.Second
)

// stock is what a client took beyond what was asked for. As long as more than half of the
// limit is free, callers that come one at a time would each pay a round trip for a certain
// answer. A stock consists of requests for one permit of each member. It lasts half a guard,
// so it is as exact as any permit, and it can be used while the configuration is known to be
// the one that it was granted under.
type stock struct {
	size   int64
	left   int64
	grant  grant
	filled Local
	until  Local

	// How many were used lately: from since on, and in the stretch before that. A stretch is
	// about as long as a stock lasts.
	used, usedBefore int64
	since            Local

	rests []returned // of stocks whose time is over, the latest last
}

// maxRests is how many rests are kept: more go back with the next call.
const maxRests = 64

// IsOne reports whether a request is for one permit of each member.
func IsOne(ns []int64) bool {
	for _, n := range ns {
		if n != 1 {
			return false
		}
	}
	return true
}

// Lend returns how much of the stock the driver may hand out on its own, and until when, to
// callers that ask for one permit of each member: all of it, if nobody waits for permits. The
// driver tells the next step how much it handed out (Around.Drawn).
func (l *Line) Lend(now Local) (n int64, until Local) {
	if !l.mayUseStock(now) || len(l.front)+len(l.waiting) > 0 {
		return 0, 0
	}
	return l.stock.left, min(l.stock.until, l.heardAt.Add(l.fresh()))
}

// drawn records that n requests were served from what was lent.
func (l *Line) drawn(n int64, now Local) {
	if n == 0 {
		return
	}
	l.stock.left -= n
	l.used.add(n, l.config[0].Span(), now)
	l.surplus.served(n, l.config, l.contenders, now)
	if half := l.halfGuard(); half > 0 {
		l.stock.advance(now, half)
		l.stock.used += n
	}
}

// assignStock gives those who came while a call was under way what the call brought beyond
// what was asked for: in turn, and without a call of their own.
func (l *Line) assignStock(now Local) {
	for len(l.front) == 0 && len(l.waiting) > 0 && IsOne(l.waiting[0].ns) && l.mayUseStock(now) {
		w := l.waiting[0]
		l.waiting = l.waiting[1:]
		l.stock.left--
		l.assign(w, l.stock.grant, now)
	}
	if len(l.waiting) == 0 {
		l.urgentAt = 0
	}
}

// mayUseStock reports whether there is a stock, and its configuration is known to be the
// present one: a guard may be long.
func (l *Line) mayUseStock(now Local) bool {
	return l.stock.left > 0 && !l.closed && now < l.stock.until && now.Sub(l.heardAt) < l.fresh()
}

// countHandedOut counts permits that now belong to their caller.
func (l *Line) countHandedOut(ns []int64, now Local) {
	l.out.Grants += slices.Max(ns)
	l.surplus.served(1, l.config, l.contenders, now)
	if c := l.config[0]; c.Rate > 0 {
		l.used.add(ns[0], c.Span(), now)
	}
	half := l.halfGuard()
	if half == 0 || !IsOne(ns) {
		return
	}
	s := &l.stock
	s.advance(now, half)
	s.used++
}

func (s *stock) advance(now Local, half time.Duration) {
	switch passed := now.Sub(s.since); {
	case passed < half:
		return
	case passed < 2*half:
		s.usedBefore = s.used
	default:
		s.usedBefore = 0
	}
	s.used, s.since = 0, now
}

// wanted is how much stock to ask for with the next batch: as much as was used in the last
// half guard, within bounds that keep small limits exact to the permit.
func (l *Line) wanted(now Local) int64 {
	half := l.halfGuard()
	if half == 0 || l.binds(now) || l.roundTrips.least() > half/2 { // then it would come too late
		return 0
	}
	l.stock.advance(now, half)
	n := max(l.stock.used, l.stock.usedBefore)
	if n < stockFrom {
		return 0
	}
	for _, s := range l.config {
		n = min(n, s.Rate/stockShare)
	}
	return n
}

// expireStock ends a stock whose time is over. A small rest is not given back at once: that
// would cost more than it is worth while half of the limit is free. When the limit becomes
// scarce, all rests go back in one call, for others to use. If it does not, they go back after
// keepsFor: this process may not ask again.
func (l *Line) expireStock(now Local) {
	if s := &l.stock; s.left > 0 && now >= s.until {
		if s.left <= s.size/2 {
			s.rests = append(s.rests, l.stockLeft())
			s.left = 0
		}
		l.returnStock()
	}
	if l.binds(now) || now < l.scarceUntil || len(l.stock.rests) > maxRests {
		l.returns = append(l.returns, l.stock.rests...)
		l.stock.rests = nil
	}
	l.endKept(now)
}

// fillStock notes what a call brought beyond what was asked for.
func (l *Line) fillStock(n int64, g grant, now Local) {
	s := &l.stock
	s.size, s.left, s.grant, s.until, s.filled = n, n, g, g.earliest.Add(l.halfGuard()), now
	if l.closed {
		l.endStock(now)
	}
}

// mayNeedStock reports whether a request wants so much that it might not fit beside what is left of
// stocks: more than a quarter of a limit, of which half was free lately.
func (l *Line) mayNeedStock(ns []int64) bool {
	if !l.stock.holds() {
		return false
	}
	for i, c := range l.config {
		if ns[i] > c.Rate/4 {
			return true
		}
	}
	return false
}

// holds reports whether something was taken in advance and not used.
func (s *stock) holds() bool { return s.left > 0 || len(s.rests) > 0 }

// hasOwn reports whether this client has permits in advance, which others could use, or is about to give
// some back.
func (l *Line) hasOwn(now Local) bool {
	s := &l.stock
	if s.left > 0 && !l.counts(l.stockLeft(), now) {
		s.left = 0
	}
	s.rests = slices.DeleteFunc(s.rests, func(r returned) bool { return !l.counts(r, now) })
	return s.holds() || slices.ContainsFunc(l.returns, func(r returned) bool { return r.filled != 0 })
}

// counts reports whether some limit still counts the permits.
func (l *Line) counts(r returned, now Local) bool {
	return slices.ContainsFunc(l.config, func(c script.Settings) bool { return now.Sub(r.grant.due) < c.Span() })
}

// backAt is when something goes back at the latest; zero: there is nothing.
func (s *stock) backAt() Local {
	switch {
	case len(s.rests) > 0:
		return s.rests[0].filled.Add(keepsFor)
	case s.left > 0:
		return s.filled.Add(keepsFor)
	}
	return 0
}

// endKept gives back what has been kept for long enough.
func (l *Line) endKept(now Local) {
	s := &l.stock
	switch at := s.backAt(); {
	case at == 0 || now < at:
	case s.left > 0 && now < s.filled.Add(keepsFor): // a stock that came after those rests
		l.endRests(now)
	default:
		l.endStock(now)
	}
}

// endStock gives back what is left of the stock, and the rests of those before it.
func (l *Line) endStock(now Local) {
	s := &l.stock
	if s.left > 0 {
		s.rests = append(s.rests, l.stockLeft())
	}
	s.left, s.until = 0, min(s.until, now)
	l.endRests(now)
}

// endRests gives back the rests, as far as they still count.
func (l *Line) endRests(now Local) {
	s := &l.stock
	l.returns = append(l.returns, slices.DeleteFunc(s.rests, func(r returned) bool { return !l.counts(r, now) })...)
	s.rests = nil
}

// returnStock gives back what is left of the stock.
func (l *Line) returnStock() {
	if l.stock.left == 0 {
		return
	}
	l.returns = append(l.returns, l.stockLeft())
	l.stock.left = 0
}

// stockLeft is what is left of the stock, in the form in which it is given back.
func (l *Line) stockLeft() returned {
	ns := make([]int64, len(l.config))
	for i := range ns {
		ns[i] = l.stock.left
	}
	return returned{grant: l.stock.grant, ns: ns, filled: l.stock.filled}
}
