package line

import "sync/atomic"

// Furthest is what Redis's clock would show if it had not been set back since one of the
// lines that share it first heard of it. Those lines belong to one client, and their limiters
// are on one server. They tell Redis this time with each batch, also for limiters that they
// have not asked for before. When the clock has run to where it was set back from, what it
// shows is again all there is to know.
//
// The zero value knows nothing. Lines may use it concurrently.
type Furthest struct{ seen atomic.Pointer[furthest] }

type furthest struct {
	clock serverClock // as it was before it was set back
	from  Remote      // what it showed then at most; zero if it was not set back
}

// learn records that a reply showed now. It returns the server's clock as all lines together know
// it, unless it was set back.
func (f *Furthest) learn(now Remote, sent, received Local) (c serverClock, ok bool) {
	for {
		old, next := f.seen.Load(), furthest{}
		if old != nil {
			next = *old
		}
		next.learn(now, sent, received)
		if f.seen.CompareAndSwap(old, &next) {
			return next.clock, next.from == 0
		}
	}
}

func (f *furthest) learn(now Remote, sent, received Local) {
	if f.from > 0 && now >= f.from { // it has run to where it was set back from
		*f = furthest{}
	}
	switch {
	case now >= f.clock.least(sent):
		f.clock.learn(now, sent, received)
		f.from = 0
	case f.from == 0:
		f.from = f.clock.most(received)
	}
}

// shows is what the clock shows at least; zero if it was set back, or if nothing is known
// about it.
func (f *Furthest) shows(now Local) Remote {
	if seen := f.seen.Load(); seen != nil && seen.from == 0 {
		return seen.clock.least(now)
	}
	return 0
}

// Least is what the clock would show at least if it had not been set back; zero if nothing is
// known about it.
func (f *Furthest) Least(now Local) Remote {
	if seen := f.seen.Load(); seen != nil {
		return seen.clock.least(now)
	}
	return 0
}
