package line

import (
	"time"
)

// Waiter is one request. All but Out is the line's.
type Waiter struct {
	Out chan Answer // for the driver: room for one, the latest

	ns          []int64
	no          uint64 // of its arrival
	since       Local  // when it asked
	until       Local  // the latest turn that is of use; zero: any
	now         bool   // has no time to wait out trouble
	reservation bool   // a reservation: its caller may come back late
	putOff      bool   // Redis has said that its place is not to be had yet
	stale       int    // how many places of it came too late to be of use
	spared      int    // and how many were left unused for that

	state   state
	grant   grant
	index   int   // in Line.placed; -1 if it is not there
	awaited bool  // its caller waits for its turn
	claimed Local // when its caller came for what it had reserved; zero: not yet, or it waits anyway
}

type state int

const (
	queued state = iota
	asked
	granted
	unsure
	done
	gone
)

// NewWaiter is a request for ns, made now. A turn after until is of no use, if
// that is not zero. A reservation's caller may come back late, and one that wants
// an answer now does not wait out trouble.
func NewWaiter(ns []int64, now, until Local, reservation, atOnce bool) *Waiter {
	return &Waiter{Out: make(chan Answer, 1), ns: ns, since: now, until: until, reservation: reservation, now: atOnce, index: -1}
}

// place is a grant: its entry in the log, and when its turn comes here.
type grant struct {
	at       Remote // where its entry is
	epochs   []int64
	ahead    bool  // it was not due when it was granted
	slow     bool  // it was, in a call that took longer than half the guard
	rank     int   // its turn among those of the same moment
	earliest Local // Redis's clock does not show at before,
	due      Local // and shows it by then: never early

	shared    bool  // it was granted in a call that other lines shared
	rechecked bool  // its time was looked at again
	confirmed Local // when the configuration was last known to be its own at its turn
}

// confirm takes up that, as of a request sent then, the configuration is still
// the one of the place: it stands then, whatever changes, if it is due within fresh.
func (p *grant) confirm(sent, received Local, fresh time.Duration) {
	if p.due.Sub(sent) <= fresh {
		p.confirmed = received
	}
}

// Answer is what a waiter is told: a place, a refusal or an error.
type Answer struct {
	Err    error         // of this package, of package script, or what the driver said of a call
	Denied bool          // its turn comes too late
	Wait   time.Duration // until the turn that was denied
	Member int           // that decided
	N      int64         // what was asked of it, and its rate, where that is ErrExceedsRate
	Rate   int64
}

// returned is a place that is given back.
type returned struct {
	grant grant
	ns    []int64
	by    *Waiter // who asks for another in exchange; nil if nobody does
	left  *Waiter // whose caller waits until Redis has it; nil if nobody does

	release *Release // permits that were handed out; nil: a place that was not
}

// Release is permits of each member that were handed out and not used.
type Release struct {
	Ns   []int64
	Of   *Waiter     // to whom; nil: that is not known, and they come off the oldest grants
	Done chan Answer // for the driver: room for one
}
