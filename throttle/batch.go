package throttle

import (
	"slices"
	"strconv"
	"time"
)

const (
	// maxBatch bounds the waiters of one call, maxRuns those that ask for
	// different things: a place for each of these takes Redis some 10 us.
	maxBatch, maxRuns = 4096, 128
	// maxReturns bounds the grants of which a call gives permits back: each
	// takes Redis some 15 us. A log that is not in buckets has no more places
	// ahead, and one that is not many more. The next call follows at once.
	maxReturns = 256
	// servedFor is how long after it was first sent a batch may be served. For
	// longer than that Redis keeps the replies (KEPT in prelude.lua).
	servedFor = 10 * time.Second
	// leastServed is that for one that gives something back to a limiter that soon expires.
	leastServed = time.Second
)

// batch is one call for many waiters.
type batch struct {
	no       string    // see batchNo
	args     []any     // of acquire.lua, once it is to be asked
	fast     *fastCall // where that may do
	runs     []run
	upTo     uint64 // the arrival of the latest waiter that was in the queue
	returns  []returned
	back     []returned // the same, added up by grant
	releases []*releasing
	refresh  bool
	far      time.Duration // see queue.far
	first    time.Time     // when it was first sent
	asked    time.Time     // when the script was first sent that answers it
	doubts   uint64        // as of then
}

// sent says that the batch is sent now, and when that is.
func (b *batch) sent() time.Time {
	now := time.Now()
	if b.first.IsZero() {
		b.first = now
	}
	return now
}

// answeredBy takes up that a script was sent then which may have served the
// batch: whatever answers it is no older than the first of these.
func (b *batch) answeredBy(sent time.Time) {
	if b.asked.IsZero() {
		b.asked = sent
	}
}

// flying are its waiters that wait for its answer.
func (b *batch) flying() []*waiter {
	var ws []*waiter
	for _, r := range b.runs {
		for _, w := range r.waiters {
			if w.state == flying {
				ws = append(ws, w)
			}
		}
	}
	return ws
}

// servedFor is how long a batch may be served. One that gives something back may
// not be served once its reply is forgotten, as it is with a limiter that expires.
func (q *queue) servedFor(b *batch) time.Duration {
	d := servedFor
	for _, s := range q.config {
		if len(b.back)+len(b.releases) > 0 && s.keepAlive > time.Millisecond {
			d = min(d, max(s.keepAlive, leastServed))
		}
	}
	return d
}

// finish tells those whose places or permits were given back.
func (b *batch) finish(err error) {
	for _, r := range b.returns {
		if r.done != nil {
			close(r.done)
		}
	}
	for _, r := range b.releases {
		r.done <- err
	}
}

// nextBatch takes the waiters that are to be asked for now.
func (q *queue) nextBatch(now time.Time) *batch {
	b := &batch{far: q.wayThere(), upTo: q.arrivals, doubts: q.doubts}
	if now.Sub(q.refreshedAt) >= refreshEvery {
		b.refresh, q.refreshedAt = true, now
	}
	q.expireStock(now)
	b.back, b.returns, q.returns = byGrant(q.returns, maxReturns)
	b.releases, q.releases = q.releases, nil
	if !q.closed {
		q.collect(b, now)
	}
	q.gathering.asked()
	if len(q.waiting) == 0 {
		q.urgentAt, q.gathering.latest = time.Time{}, time.Time{}
	}

	q.seq++
	b.no = batchNo(q.seq)
	if !q.binds(now) && !now.Before(q.scarceUntil) && b.far == 0 && b.plain(q.config) { // far away, to be declined costs a round trip
		var stock int64
		if len(b.runs) > 1 {
			stock = b.runs[1].stock
		}
		ws := b.runs[0].waiters
		b.fast = newFastCall(q.replyKey, q.members, q.config, b.no, int64(len(ws)), stock, q.clock.least(now), q.looks(now), ws[0].ns)
	}
	return b
}

// arguments are the ARGV of acquire.lua for a batch.
func (q *queue) arguments(b *batch, now time.Time) []any {
	q.mu.Lock()
	defer q.mu.Unlock()
	ns := numbers(make([]byte, 0, 128))
	var latest int64
	if q.clock.known {
		latest = q.clock.least(b.first) + q.servedFor(b).Microseconds()
	}
	ns.add(q.told.least(now), latest, ((b.far + farStep - 1) / farStep * farStep).Microseconds(), int64(len(q.members)))
	ahead := q.ahead(now)
	for i := range q.members {
		ns.add(q.config[i].epoch, one(b.refresh), ahead[i])
	}
	ns.add(int64(len(b.back)))
	for _, r := range b.back {
		ns.add(r.place.at)
		ns.add(r.place.epochs...)
		ns.add(r.ns...)
	}
	released := make([]int64, len(q.members))
	for _, r := range b.releases {
		for i, n := range r.ns {
			released[i] += n
		}
	}
	ns.add(released...)
	ns.add(int64(len(b.runs)))
	for _, r := range b.runs {
		if r.stock > 0 {
			ns.add(-1, 0, 0, 0, r.stock)
			for range q.members {
				ns.add(1)
			}
			continue
		}
		ns.add(r.longest.Microseconds(), r.reach.Microseconds(), r.near.Microseconds(), r.lead.Microseconds(), int64(len(r.waiters)))
		ns.add(r.waiters[0].ns...)
	}
	return ns.arguments(b.no, q.c.id, q.config, q.members)
}

// numbers are those of a call of acquire.lua, in one argument.
type numbers []byte

func (s *numbers) add(ns ...int64) {
	for _, n := range ns {
		if len(*s) > 0 {
			*s = append(*s, ' ')
		}
		*s = strconv.AppendInt(*s, n, 10)
	}
}

// arguments are the ARGV with these numbers.
func (s numbers) arguments(no, id string, config []settings, ls []*Limiter) []any {
	args := append(make([]any, 0, 3+2*len(ls)), no, id, string(s))
	for i, l := range ls {
		args = append(args, config[i].seal, l.create)
	}
	return args
}

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// byGrant adds up what is given back of one grant, for at most so many grants:
// a stall can make the places of hundreds of waiters stale, and the script is to
// touch their entry once. It returns the sums, what is in them, and what is not.
func byGrant(rs []returned, most int) (sums, within, rest []returned) {
	index := make(map[int64]int, min(len(rs), most)) // by time
	for _, r := range rs {
		i, ok := index[r.place.at]
		switch {
		case ok && slices.Equal(sums[i].place.epochs, r.place.epochs):
			for m, n := range r.ns {
				sums[i].ns[m] += n
			}
		case len(sums) == most:
			rest = append(rest, r)
			continue
		default:
			index[r.place.at] = len(sums)
			sums = append(sums, returned{place: r.place, ns: slices.Clone(r.ns)})
		}
		within = append(within, r)
	}
	return sums, within, rest
}

// collect moves waiters from the queue into the runs of a batch. As long as not
// all is given back, only those ask who give back in exchange: the others would
// get what is left beside places that nobody uses any more.
func (q *queue) collect(b *batch, now time.Time) {
	early := make(map[*waiter]bool)
	if len(q.returns) > 0 {
		for _, r := range b.returns {
			early[r.by] = true
		}
	}
	all := slices.Concat(q.front, q.waiting)
	q.front, q.waiting = nil, nil
	stale := 0 // those whose places came too late ask for the same, so that they ask together the next time, too
	for _, w := range all {
		stale = max(stale, w.stale)
	}
	var after []*waiter
	for i, w := range all {
		if w.stale > 0 {
			w.stale = stale
		}
		if len(q.returns) > 0 && !early[w] {
			after = append(after, w)
			continue
		}
		r := q.runOf(w, now)
		last := len(b.runs) - 1
		alike := last >= 0 && b.runs[last].like(r)
		if i == maxBatch || !alike && len(b.runs) == maxRuns {
			q.waiting = all[i:]
			break
		}
		w.state = flying
		if alike {
			b.runs[last].waiters = append(b.runs[last].waiters, w)
		} else {
			b.runs = append(b.runs, r)
		}
	}
	q.waiting = append(after, q.waiting...)
	if stock := q.wanted(now); stock > 0 && len(b.runs) > 0 && q.stock.left == 0 {
		b.runs = append(b.runs, run{stock: stock})
	}
}

// ahead is what the client has reserved of each member, through whatever queues,
// and what this queue leaves to others.
func (q *queue) ahead(now time.Time) []int64 {
	sums := make([]int64, len(q.members))
	q.surplus.settle(q.config, q.contenders, now)
	for i, s := range q.config {
		sums[i] = q.surplus.withheld(i, s, q.contenders) + q.reserved[i].Load()
	}
	return sums
}
