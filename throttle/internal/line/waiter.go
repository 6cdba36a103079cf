package line

import "time"

// Waiter is one request. All of it except Out belongs to the line.
type Waiter struct {
	Out chan Answer // for the driver: holds one answer, the latest

	ns          []int64
	no          uint64 // the number of its arrival
	among       string // it takes turns of those of the same that came later; empty: it does not
	came        int64  // when its caller came: see Among
	since       Local  // when it asked
	until       Local  // the latest time at which its permits can be due; zero: any
	reserved    Local  // the until with which it asked
	moved       bool   // a change took its reserved permits while its caller did not wait for them
	now         bool   // has no time to wait out trouble
	reservation bool   // its caller may come back late for its permits
	putOff      bool   // Redis has said that its permits cannot be reserved yet
	stale       int    // how many of its grants came too late to be used
	next        bool   // its latest grant came too late, but still counted: it has the next turn in this process
	left        bool   // its caller has left
	spared      int    // how many more grants came too late, and were left unused rather than given back

	state   state
	grant   grant
	index   int   // in Line.holders; -1 if it is not there
	awaited bool  // its caller waits for its permits
	wakes   Local // until when its caller sleeps: when its permits were due as it last heard
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

// NewWaiter returns a request for ns, made now. If until is not zero, permits that are due
// after it are useless. The caller of a reservation may come back late. A request that wants
// an answer at once does not wait out trouble.
func NewWaiter(ns []int64, now, until Local, reservation, atOnce bool) *Waiter {
	return &Waiter{Out: make(chan Answer, 1), ns: ns, since: now, until: until, reserved: until, reservation: reservation, now: atOnce, index: -1}
}

// Await says, before it arrives, that the caller of a reservation waits for its permits: they may get an
// earlier time.
func (w *Waiter) Await() { w.awaited = true }

// Among says, before it arrives, that its caller came at since, perhaps earlier than it asks, and comes for its permits once they
// are due soon: until then they may get another time. It takes the turn of those of the same name that came later, if these have
// the time to wait for another.
func (w *Waiter) Among(name string, since int64) {
	w.among, w.came, w.awaited = name, since, true
}

// grant is an entry in the log, and when its permits are due here.
type grant struct {
	at       Remote // the time of its entry
	epochs   []int64
	ahead    bool  // it was not due when it was granted
	slow     bool  // it was due then, but its call took longer than half the guard
	rank     int   // its position among the grants for the same time
	earliest Local // Redis's clock shows at no earlier than this,
	due      Local // and no later than this: permits are never early

	shared    bool  // its call was shared with other lines
	rechecked bool  // its time was checked again
	confirmed Local // when it was last known to stand, whatever changes
}

// confirm records that, as of a request sent at that time, the configuration is still the one
// of the grant. If the grant is due within fresh of that time, it stands, whatever changes.
func (p *grant) confirm(sent, received Local, fresh time.Duration) {
	if p.due.Sub(sent) <= fresh {
		p.confirmed = received
	}
}

// Answer is what a waiter is told: a grant, a denial or an error.
type Answer struct {
	Err    error         // of this package, of package script, or what the driver reports of a call
	Denied bool          // its permits would be due too late
	Wait   time.Duration // until the denied permits would be due
	Member int           // the member that decided
	N      int64         // what was asked of that member, and its rate, if Err is ErrExceedsRate
	Rate   int64
}

// Release is permits of each member that were handed out and not used.
type Release struct {
	Ns   []int64
	Of   *Waiter     // who got them; nil: unknown, and they come off the oldest grants
	Done chan Answer // for the driver: holds one answer
}
