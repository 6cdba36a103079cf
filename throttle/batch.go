package throttle

import (
	"cmp"
	"slices"
	"time"
)

const (
	// maxBatch bounds the waiters of one call, maxRuns those that ask for
	// different things: a place for each of these takes Redis some 10 us.
	maxBatch, maxRuns = 4096, 128
	// maxReturns bounds the grants of which a call gives permits back: each
	// takes Redis some 15 us. The next call follows at once.
	maxReturns = 48
)

// batch is one call for many waiters.
type batch struct {
	no       string    // see batchNo
	args     []any     // of acquire.lua, once it is to be asked
	fast     *fastCall // where that may do
	runs     []run
	returns  []returned
	back     []returned // the same, added up by grant
	releases []*releasing
	refresh  bool
	first    time.Time // when it was first sent
}

// sent says that the batch is sent now, and when that is.
func (b *batch) sent() time.Time {
	now := time.Now()
	if b.first.IsZero() {
		b.first = now
	}
	return now
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
	b := &batch{}
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
	if !q.binds(now) && !now.Before(q.scarceUntil) && b.plain(q.config) {
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
	args := append(make([]any, 0, 16+8*len(b.runs)), b.no, q.c.id, len(q.members))
	ahead := q.ahead(now)
	for i, l := range q.members {
		args = append(args, q.config[i].seal, q.config[i].epoch, b.refresh, l.create, ahead[i])
	}
	args = append(args, len(b.back))
	for _, r := range b.back {
		args = append(args, r.place.at)
		args = appendAll(args, r.place.epochs)
		args = appendAll(args, r.ns)
	}
	var released int64
	for _, r := range b.releases {
		released += r.n
	}
	for i := range q.members {
		if i == 0 {
			args = append(args, released)
		} else {
			args = append(args, 0)
		}
	}
	args = append(args, len(b.runs))
	for _, r := range b.runs {
		if r.stock > 0 {
			args = append(args, -1, 0, 0, 0, r.stock)
			for range q.members {
				args = append(args, 1)
			}
			continue
		}
		args = append(args, r.longest.Microseconds(), r.reach.Microseconds(), r.near.Microseconds(), r.lead.Microseconds(), len(r.waiters))
		args = appendAll(args, r.waiters[0].ns)
	}
	return append(args, q.clock.least(now))
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

func appendAll(args []any, ns []int64) []any {
	for _, n := range ns {
		args = append(args, n)
	}
	return args
}

// collect moves waiters from the queue into the runs of a batch.
func (q *queue) collect(b *batch, now time.Time) {
	all := slices.Concat(q.front, q.waiting)
	q.front, q.waiting = nil, nil
	for i, w := range all {
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
	if stock := q.wanted(now); stock > 0 && len(b.runs) > 0 && q.stock.left == 0 {
		b.runs = append(b.runs, run{stock: stock})
	}
}

// ahead is what this queue has reserved of each member, and what it leaves to others.
func (q *queue) ahead(now time.Time) []int64 {
	sums := make([]int64, len(q.members))
	q.surplus.settle(q.config, q.contenders, now)
	for i, s := range q.config {
		sums[i] = q.surplus.withheld(i, s, q.contenders)
	}
	for w := range q.placed {
		for i, n := range w.ns {
			sums[i] += n
		}
	}
	return sums
}

// inTurn are the waiters that have a place, in the order of their turns; those
// of one turn in the order of their arrival.
func (q *queue) inTurn() []*waiter {
	ws := make([]*waiter, 0, len(q.placed))
	for w := range q.placed {
		ws = append(ws, w)
	}
	slices.SortFunc(ws, func(a, b *waiter) int {
		return cmp.Or(cmp.Compare(a.place.at, b.place.at), cmp.Compare(a.no, b.no))
	})
	return ws
}
