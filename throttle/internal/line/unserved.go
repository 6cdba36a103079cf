package line

import (
	"fmt"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// What follows is of batches that Redis has not served, or of which nobody knows.

// refuse answers a batch that was not served and never will be.
func (l *Line) refuse(b *batch, r *script.Reply, now Local) {
	a := Answer{Err: script.ErrReply, Member: r.Member}
	switch r.Status {
	case script.Missing:
		a.Err = ErrNotInitialized
	case script.Bad:
		a.Err = script.BadField(r.Field)
		l.config[r.Member].Seal, l.config[r.Member].Plain = "", false // what it was is no longer known
	}
	if len(l.config) > 1 && !b.onlyReturns() { // the other limiters can have back what was theirs: with a call that asks for nothing
		l.returns, b.returns = append(b.returns, l.returns...), nil
	}
	l.drop(b, a)
	l.replace(now) // grants of a limiter that is gone are useless, too
}

// drop ends a batch that Redis will never serve.
func (l *Line) drop(b *batch, a Answer) {
	for _, w := range b.inCall() {
		l.answer(w, a)
	}
	l.finish(b, a)
}

// renew asks for a batch again, under another key. This was the latest batch of the line, so
// somebody else has written what Redis takes for a later one.
func (l *Line) renew(b *batch) {
	l.keyNo++
	l.keys = script.RequestKeys(fmt.Sprint(l.c.Reply, "-", l.keyNo), l.c.Members)
	l.putBack(b)
	l.returns = append(b.returns, l.returns...)
	l.releases = append(b.releases, l.releases...)
}

// expired asks again for the permits of a batch if Redis did not answer for so long that it
// no longer knows whether it has served the batch. Permits that the batch may have been
// granted count as used. What it was to give back is not given back again, because that could
// be done twice. If the batch was sent only just now, and once, Redis's clock was set, and
// the batch was not served.
func (l *Line) expired(b *batch, received Local) {
	l.putBack(b)
	if !b.alone && received.Sub(b.first) < LeastServed/2 {
		l.returns = append(b.returns, l.returns...)
		l.releases = append(b.releases, l.releases...)
		return
	}
	l.finish(b, Answer{Err: UnknownWhether()})
}

// putBack has the waiters of a batch ask again, ahead of the others.
func (l *Line) putBack(b *batch) {
	ws := b.inCall()
	for _, w := range ws {
		if l.closed {
			l.answer(w, Answer{Err: ErrClosed})
		} else {
			w.state = queued
		}
	}
	if l.closed {
		return
	}
	l.front = append(ws, l.front...)
	if len(ws) > 0 {
		l.askAt = 0
	}
}
