package throttle

import (
	"fmt"
	"time"
)

const (
	// declinedRoom is what fast.lua answers where too little of a limit is free.
	declinedRoom = 1
	// lookEvery is how many calls of fast.lua have one look at what others may
	// have done, if freshFor has not passed since the last.
	lookEvery = 16
)

// fastCall is a call of fast.lua.
type fastCall struct {
	keys     []string
	args     []any
	declined bool

	// What it grants.
	runs   []int64 // how many requests of each run
	epochs []int64
}

// plain reports whether the batch is one that fast.lua can serve: one run of
// equal requests, perhaps with a stock, of limiters that are plain.
func (b *batch) plain(config []settings) bool {
	for _, s := range config {
		if !s.plain {
			return false
		}
	}
	runs := len(b.runs)
	if runs == 0 {
		return false
	}
	for i, n := range b.runs[0].waiters[0].ns {
		if n > config[i].rate {
			return false // never to be had; and sums of such numbers may not fit
		}
	}
	if runs == 2 && b.runs[1].stock > 0 {
		runs = 1
	}
	return runs == 1 && !b.refresh && len(b.returns)+len(b.releases) == 0 && b.runs[0].lead == 0
}

// batchNo is a batch's number as the scripts get it, and compare it: as text.
func batchNo(seq uint64) string { return fmt.Sprintf("%015d", seq) }

// looks reports whether a call of fast.lua is to look after what need not be
// seen to each time.
func (q *queue) looks(now time.Time) bool {
	if q.unlooked < lookEvery && now.Sub(q.lookedAt) < freshFor {
		q.unlooked++
		return false
	}
	q.unlooked, q.lookedAt = 1, now
	return true
}

// newFastCall is the call for a number of equal requests and a stock of
// limiters whose settings are known.
func newFastCall(replyKey string, ls []*Limiter, config []settings, no string, count, stock, least int64, look bool, ns []int64) *fastCall {
	n := len(ls)
	f := &fastCall{keys: make([]string, 1+3*n), args: append(make([]any, 0, 4+4*n), no, least), epochs: make([]int64, n)}
	f.runs = append(f.runs, count)
	if stock > 0 {
		f.runs = append(f.runs, stock)
	}
	f.keys[0] = replyKey
	perClient := false
	for i, l := range ls {
		own := 0
		if config[i].perClient {
			own, perClient = 2, true
		}
		f.keys[1+i], f.keys[1+n+i], f.keys[1+2*n+i] = l.keys[1+own], l.name, l.keys[2+own]
		f.args = append(f.args, config[i].seal, ns[i]*count+stock, config[i].rate)
		f.epochs[i] = config[i].epoch
	}
	if stock == 0 && !look && !perClient {
		return f
	}
	f.args = append(f.args, stock > 0, look)
	for _, s := range config {
		var ms int64
		if s.perClient {
			ms = (s.span() + time.Millisecond - 1).Milliseconds()
		}
		f.args = append(f.args, ms)
	}
	return f
}

// reply makes of what fast.lua says what acquire.lua says where it repeats that.
func (f *fastCall) reply(reply any) any {
	if at, ok := reply.(string); ok {
		return fmt.Sprintf("%s %d %s", at, statusAll, at)
	}
	return reply
}

// granted makes of the reply that fast.lua gave what acquire.lua would have said.
func (f *fastCall) granted(r *batchReply) {
	r.status, r.epochs, r.changed = statusOK, f.epochs, make([]*settings, len(f.epochs))
	r.runs = make([]runReply, len(f.runs))
	for i, count := range f.runs {
		r.runs[i].grants = []grant{{count: count}}
	}
}
