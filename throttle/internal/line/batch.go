package line

import (
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

const (
	// maxBatch bounds the waiters of one call. maxRuns bounds those of them that ask for
	// different things: a grant for each of these takes Redis some 10 us.
	maxBatch, maxRuns = 4096, 128
	// maxReturns bounds from how many grants a call gives permits back: each takes Redis some
	// 15 us. A log that is not in buckets has no more grants ahead, and one in buckets has
	// not many more. The next call follows at once.
	maxReturns = 256
	// ServedFor is how long after it was first sent a batch may be served. Redis keeps the
	// replies for longer than that (KEPT in prelude.lua).
	ServedFor = 10 * time.Second
	// LeastServed is the shortest that this time becomes, for a limiter that is kept alive
	// for less.
	LeastServed = time.Second
	// refreshEvery is how often a line has the cached value rebuilt. As long as nothing is
	// scarce, it also makes at least refreshFrom calls in between.
	refreshEvery, refreshFrom = 10 * time.Second, 16
	// verifyEvery is how many calls by the short way it takes until one verifies what others
	// may have done, if freshFor has not passed since the last that did.
	verifyEvery = 16
	// fieldsEvery is after how long a call by the short way also verifies what only people
	// can have done, who write into a limiter's hash by hand.
	fieldsEvery = time.Second
	// renewEarly is into how many parts script.RenewIn is divided: limiters are renewed in
	// the last part.
	renewEarly = 8
)

// batch is one call for many waiters.
type batch struct {
	request  script.Request
	short    *script.Short // the request by the short way; nil if that will not do
	declined bool
	long     bool        // acquire.lua was asked
	waiters  [][]*Waiter // of each run
	upTo     uint64      // the number of the latest arrival when it was made
	returns  []returned
	releases []*Release
	far      time.Duration // see Line.far
	first    Local         // when it was first sent
	asked    Local         // when the script that answers it was first sent, or before that
	within   time.Duration // for how long after first it may be served
	doubts   uint64        // Line.doubts when it was made
	attempts int
	turns    bool     // somebody in it gets one of the next turns in this process: see Waiter.takesTurns
	denied   []denial // late ones among them that Redis denies: they may have a turn all the same
	alone    bool     // a call for it may have been served; it no longer shares calls
}

// permits is how many permits of a member its waiters ask for.
func (b *batch) permits(member int) (n int64) {
	for i, ws := range b.waiters {
		n += int64(len(ws)) * b.request.Runs[i].Ns[member]
	}
	return n
}

// onlyReturns reports whether it only gives back grants.
func (b *batch) onlyReturns() bool { return len(b.request.Runs)+len(b.releases) == 0 }

// gaveBack reports whether it gives back permits that a caller had been handed.
func (b *batch) gaveBack() bool {
	return len(b.releases) > 0 || slices.ContainsFunc(b.returns, func(r returned) bool { return r.release != nil })
}

// inCall returns its waiters that wait for its answer.
func (b *batch) inCall() []*Waiter {
	var ws []*Waiter
	for _, run := range b.waiters {
		for _, w := range run {
			if w.state == asked {
				ws = append(ws, w)
			}
		}
	}
	return ws
}

// mayBeServed records that a call for the batch was made that may have been served and has no
// answer: what the next answer says may be as old as the first call.
func (b *batch) mayBeServed() {
	b.alone = true
	if b.asked == 0 {
		b.asked = b.first
	}
}

// finish tells those whose grants or permits were given back.
func (l *Line) finish(b *batch, a Answer) {
	for _, r := range b.returns {
		if r.left != nil {
			l.out.Left = append(l.out.Left, r.left)
		}
		if r.release != nil {
			l.end(r.release, a)
		}
	}
	for _, r := range b.releases {
		l.end(r, a)
	}
}

// nextBatch makes a batch of the waiters that are to be asked for now.
func (l *Line) nextBatch(now Local) *batch {
	b := &batch{far: l.wayThere(), upTo: l.arrivals, doubts: l.doubts, within: l.servedFor(now)}
	refresh := l.refreshes(now)
	l.expireStock(now)
	l.seq++
	b.request = script.Request{
		Keys: l.keys, No: script.BatchNo(l.seq), Client: l.c.Client, Far: (b.far + farStep - 1) / farStep * farStep,
		Members: make([]script.Member, len(l.config)), Released: make([]int64, len(l.config)),
	}
	for i, s := range l.config {
		b.request.Members[i] = script.Member{Settings: s, Create: l.Around.Create[i], Refresh: refresh}
	}
	b.request.Returns, b.returns, l.returns = byGrant(l.returns, maxReturns)
	b.releases, l.releases = l.releases, nil
	for _, r := range b.releases {
		for i, n := range r.Ns {
			b.request.Released[i] += n
		}
	}
	if !l.closed {
		l.collect(b, now)
	}
	if b.onlyReturns() { // it creates nothing
		for i := range b.request.Members {
			b.request.Members[i].Create = script.IfThere
		}
	}
	l.gathering.asked()
	if len(l.waiting) == 0 {
		l.urgentAt, l.gathering.latest = 0, 0
	}
	// Where Redis is far, a decline costs a round trip.
	if !l.binds(now) && now >= l.scarceUntil && b.far == 0 && b.request.Fits() {
		least := l.shows(now)
		if least == 0 { // if the clock was set back, the limiter may have to be told
			least = l.c.Clock.Least(now)
		}
		b.short = b.request.Short(least, b.within, l.verifies(now), l.renewsFrom(least))
	}
	return b
}

// refreshes reports whether a call is to have the cached value rebuilt. Such a call also
// notes that this client uses a PerClient limit, or contends with others.
func (l *Line) refreshes(now Local) bool {
	l.sinceRefresh++
	due := func(s script.Settings) bool {
		return s.PerClient || l.contenders > 0 || len(l.holders) > 0 || l.binding || l.sinceRefresh > refreshFrom
	}
	if l.config[0].Epoch != 0 && (now.Sub(l.refreshedAt) < refreshEvery || !slices.ContainsFunc(l.config, due)) {
		return false
	}
	l.refreshedAt, l.sinceRefresh = now, 0
	return true
}

// verifies is how much a call by the short way verifies of what need not be verified each
// time.
func (l *Line) verifies(now Local) script.Verify {
	l.unverified++
	if l.unverified < verifyEvery && now.Sub(l.verifiedAt) < freshFor {
		return script.Barely
	}
	l.verifiedAt, l.unverified = now, 0
	if now.Sub(l.fieldsAt) < fieldsEvery {
		return script.Others
	}
	l.fieldsAt = now
	return script.Fields
}

// renewsFrom is the time from which a call by the short way is to have limiters that expire
// live on. Zero means at once. It is zero some time before that is necessary, because many
// lines share a call.
func (l *Line) renewsFrom(least Remote) Remote {
	if l.renews-least < Remote(script.RenewIn(l.config).Microseconds()/renewEarly) {
		return 0
	}
	return l.renews
}

// ask returns the call for a batch. The call is made at the time at: now, or after a pause
// that may be cut short. It goes by the short way if that will do.
func (l *Line) ask(b *batch, now, at Local) *Call {
	if b.first == 0 {
		b.first = now
	}
	// Later than that, what fast.lua does not verify may have changed long ago.
	if b.short != nil && !b.declined && at.Sub(b.first) < freshFor {
		return &Call{Script: script.Fast, batch: b, short: b.short}
	}
	if !b.long {
		b.long = true
		r := &b.request
		if shows := l.shows(b.first); shows > 0 {
			r.Latest = shows + Remote(b.within.Microseconds())
		}
		l.surplus.settle(l.config, l.contenders, now)
		for i, s := range l.config {
			r.Members[i].Ahead = l.surplus.withheld(i, s, l.contenders) + l.reserved[i] + l.Around.Elsewhere[i]
		}
	}
	return &Call{Script: script.Acquire, batch: b, told: l.told, clock: l.c.Clock}
}

// servedFor is how long a batch that is made now may be served. Redis must not serve it once
// its reply is forgotten, which happens soon after a limiter with KeepAlive has expired. The
// time of a batch ends no earlier than that of the batches before it, because only its reply
// shows that they are older.
func (l *Line) servedFor(now Local) time.Duration {
	d := ServedFor
	for i, s := range l.config {
		keep := s.KeepAlive
		if s.Epoch == 0 { // it may be about to be created
			keep = script.KeepAlive(l.Around.Create[i])
		}
		if keep > time.Millisecond && l.shows(now) > 0 {
			d = min(d, max(keep, LeastServed))
		}
	}
	l.servedUntil = max(l.servedUntil, now.Add(d))
	return l.servedUntil.Sub(now)
}

// byGrant adds up what is given back of each grant, for at most so many grants. A stall can
// make the grants of hundreds of waiters stale, and the script should touch each entry only
// once. It returns the sums, the returns that are in them, and the rest of the returns.
func byGrant(rs []returned, most int) (sums []script.Return, within, rest []returned) {
	if len(rs) == 0 {
		return nil, nil, nil
	}
	type grant struct {
		at       Remote
		kind     script.ReturnKind
		announce int64
	}
	index := make(map[grant]int, min(len(rs), most))
	for _, r := range rs {
		of := grant{r.grant.at, r.kind(), r.announce}
		i, ok := index[of]
		switch {
		case ok && slices.Equal(sums[i].Epochs, r.grant.epochs):
			for m, n := range r.ns {
				sums[i].Ns[m] += n
			}
		case len(sums) == most:
			rest = append(rest, r)
			continue
		default:
			index[of] = len(sums)
			sums = append(sums, script.Return{At: of.at, Kind: of.kind, Announce: of.announce, Epochs: r.grant.epochs, Ns: slices.Clone(r.ns)})
		}
		within = append(within, r)
	}
	return sums, within, rest
}

// collect moves waiters from the line into the runs of a batch. If the batch has no room for
// everything that is to be given back, only those waiters ask whose own grants it gives back.
// Others would get only what the remaining grants, which nobody uses any more, leave free.
func (l *Line) collect(b *batch, now Local) {
	var early map[*Waiter]bool
	if len(l.returns) > 0 {
		early = make(map[*Waiter]bool)
		for _, r := range b.returns {
			early[r.by] = true
		}
	}
	all := l.waiting
	if len(l.front) > 0 {
		all = slices.Concat(l.front, l.waiting)
	}
	l.front, l.waiting = nil, nil
	// Those whose grants came too late ask for the same, so that they ask together next time,
	// too.
	stale := 0
	for _, w := range all {
		stale = max(stale, w.stale)
	}
	runs := b.request.Runs
	var after []*Waiter
	for i, w := range all {
		if w.stale > 0 {
			w.stale = stale
		}
		if len(l.returns) > 0 && !early[w] {
			after = append(after, w)
			continue
		}
		r := l.runOf(w, now)
		last := len(runs) - 1
		alike := last >= 0 && runs[last].Like(&r)
		if i == maxBatch || !alike && len(runs) == maxRuns {
			l.waiting = all[i:]
			break
		}
		w.state, b.turns = asked, b.turns || w.takesTurns()
		if alike {
			runs[last].Count++
			b.waiters[last] = append(b.waiters[last], w)
		} else {
			runs, b.waiters = append(runs, r), append(b.waiters, []*Waiter{w})
		}
	}
	l.waiting = append(after, l.waiting...)
	b.request.Runs = runs
	if len(runs) == 1 {
		runs[0].Count += l.more(b, now)
	}
	if n := l.wanted(now); n > 0 && len(runs) > 0 && l.stock.left == 0 {
		ones := make([]int64, len(l.config))
		for i := range ones {
			ones[i] = 1
		}
		runs, b.waiters = append(runs, script.Run{Prefetch: true, Count: n, Ns: ones}), append(b.waiters, nil)
	}
	b.request.Runs = runs
}
