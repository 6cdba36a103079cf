package line

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Kind is what happened.
type Kind int

// The kinds, and what an Event of each has besides its Kind.
const (
	Arrive   Kind = iota // Waiter asks. Serves: its caller can make the call for it
	Due                  // Waiter's caller comes for its permits, which may not be due yet; or only waits until they are due Within
	Missed               // Waiter's caller had its permits, and did not go on before Latest
	Leave                // Waiter's caller has left
	Extend               // Waiter can use permits until Until (zero: any time), and waits out trouble
	Give                 // Release is given back
	Ready                // whoever makes the calls asks for the next one
	Answered             // Call has an answer
	Troubled             // Call failed (error in Answer) or took too long (no error), and is made again
	Again                // Call has no answer, or none that ends it; somebody else makes it
	Beside               // it is time to check the configuration beside the call under way
	Tick                 // the time in Wake has come
	Doubt                // a limiter was changed, or may have been
	Freed                // permits of a limiter went back
	Close                // everybody is told, and what they have is given back
	kinds
)

// String returns the name of what happened.
func (k Kind) String() string {
	return [kinds]string{"Arrive", "Due", "Missed", "Leave", "Extend", "Give", "Ready", "Answered", "Troubled", "Again", "Beside", "Tick", "Doubt", "Freed", "Close"}[k]
}

// Event is what happened, and to whom it happened.
type Event struct {
	Kind    Kind
	Waiter  *Waiter
	Until   Local
	Within  time.Duration
	Release *Release
	Call    *Call
	Answer  Reply
	Serves  bool
}

// Reply is the result of a call.
type Reply struct {
	Value  any
	Err    error
	Sent   Local
	Shared bool // with calls of other lines
	Final  bool // Err will not pass: the call is not made again
}

// Actions is what to do about an event.
type Actions struct {
	Answers []Told     // to give in this order, before anything else happens to the line
	Served  []*Release // whose answers are in Ends
	Ends    []Answer
	Left    []*Waiter // those who left, and whose grants are given back now

	Start    bool          // somebody must begin to make calls, and ask for the next one (Ready)
	Call     *Call         // make this call
	After    time.Duration // make it so much later, or sooner if poked; no Call: ask for one then (Ready)
	Poke     bool          // whoever waits before making a call again stops waiting
	Wake     Local         // send Tick then; zero: no change
	WayKnown bool          // new lines can use what Way returns
	Stopped  bool          // the line is closed and has given back what it could

	Taken  bool          // for Due: the permits are the caller's
	Near   bool          // for Due: they are due Within, and not taken
	Latest Local         // for Due: until when it may use them; zero: at any time
	Sleep  time.Duration // for Due: it is too early by so much
	Early  time.Duration // for Due: by how much sooner than that a timer should fire

	Grants, Denials, Stale, Late int64 // to be counted
}

// Told is an answer and the waiter to tell.
type Told struct {
	Waiter *Waiter
	Answer Answer
}

func (a *Actions) reset() {
	*a = Actions{Answers: a.Answers[:0], Served: a.Served[:0], Ends: a.Ends[:0], Left: a.Left[:0]}
}

// Call is a script to run.
type Call struct {
	Script *redis.Script
	// Beside is how long after this call is sent the configuration is to be checked beside it
	// (event Beside); zero: there is no need.
	Beside time.Duration

	keys   []string // of a check
	batch  *batch   // nil: a check
	short  *script.Short
	told   serverClock
	clock  *Furthest
	doubts uint64
	first  bool // it connects
	beside bool
	since  Local // when it was made
}

// With returns the KEYS and ARGV of the script, which is sent now.
func (c *Call) With(now Local) (keys []string, args []any) {
	switch {
	case c.batch == nil:
		return c.keys, nil
	case c.short != nil:
		return c.short.Call()
	}
	r := &c.batch.request
	r.Least, r.Furthest = c.told.least(now), c.clock.Least(now)
	return r.Keys, r.Args()
}

// Shares returns the request in the form in which it may share a call with others; nil if it
// may not.
func (c *Call) Shares() *script.Short {
	if c.short == nil || c.batch.alone || c.Beside != 0 || !c.short.Shares() {
		return nil
	}
	return c.short
}

// Step handles what happened now, and writes to out what to do about it.
func (l *Line) Step(e Event, now Local, out *Actions) {
	out.reset()
	l.out = out
	l.drawn(l.Around.Drawn, now)
	l.Around.Drawn = 0
	switch e.Kind {
	case Arrive:
		l.arrive(e.Waiter, e.Serves, now)
	case Due:
		l.handOut(e.Waiter, e.Within, now)
	case Missed:
		l.missed(e.Waiter, now)
	case Leave:
		l.leave(e.Waiter, now)
	case Extend:
		e.Waiter.until, e.Waiter.now, e.Waiter.claimed = e.Until, false, now
	case Give:
		l.give(e.Release)
	case Ready:
		l.next(now)
	case Answered:
		l.answered(e.Call, e.Answer, e.Serves, now)
	case Troubled:
		e.Call.batch.mayBeServed()
		if e.Answer.Err != nil {
			l.failed(e.Call.batch, e.Answer.Err, now)
		}
	case Again:
		e.Call.batch.mayBeServed()
		l.callSince, out.Call = now, l.ask(e.Call.batch, now, now)
	case Beside:
		out.Call = l.check(now)
		out.Call.beside = true
	case Tick:
		l.kick()
	case Doubt:
		l.doubt()
	case Freed:
		l.freed(now)
	case Close:
		l.close(now)
	}
}

// kick has somebody make calls, unless somebody does already.
func (l *Line) kick() {
	if l.calling || l.closed {
		return
	}
	l.calling, l.out.Start = true, true
}

// next asks what there is to ask now. If there is nothing, calls stop until there is.
func (l *Line) next(now Local) {
	if n := len(l.returns); l.stock.holds() {
		if l.endKept(now); len(l.returns) > n {
			l.moveUpAt = now
		}
	}
	l.moveUp(now)
	if until := l.comeback.until; until != 0 && now >= until {
		l.comeback.row = 0
		l.giveBackHeld()
	}
	switch {
	case l.toMeasure() && !l.closed, l.toTime(), l.toCheck(now) && (!l.toAsk(now) || l.onlyReturns()):
		l.call(l.check(now), now)
	case l.toAsk(now):
		l.call(l.ask(l.nextBatch(now), now, now), now)
	default:
		l.rest(now)
	}
}

// toTime reports whether a check must get Redis's time first. What is given back must not be
// given back twice, so its batch says until when it may be served.
func (l *Line) toTime() bool {
	return len(l.releases)+len(l.returns) > 0 && !l.closed && !l.clock.known && l.heardAt == 0
}

// call has a call made.
func (l *Line) call(c *Call, now Local) {
	if c.batch == nil || c.batch.first == now {
		c.Beside = l.checkBeside(now)
	}
	l.callSince = now
	l.out.Call = c
}

// rest stops calls until there is something to ask.
func (l *Line) rest(now Local) {
	l.calling = false
	if l.closed {
		l.out.Stopped = true
		return
	}
	l.arm(now)
}

// arm sets when to ask for what is not needed yet.
func (l *Line) arm(now Local) {
	at, ok := l.checkAt(now)
	if ask := l.nextAsk(); len(l.waiting) > 0 && (!ok || ask < at) {
		at, ok = ask, true
	}
	if until := l.comeback.until; until != 0 && (!ok || until < at) {
		at, ok = until, true
	}
	if back := l.stock.backAt(); back != 0 && (!ok || back < at) {
		at, ok = back, true
	}
	if !ok {
		return
	}
	if l.moveUpAt != 0 && l.trouble == nil {
		at = min(at, l.moveUpAt)
	}
	l.out.Wake = max(at, now)
}

// toAsk reports whether there is a batch to send now.
func (l *Line) toAsk(now Local) bool {
	if len(l.front)+len(l.returns)+len(l.releases) > 0 {
		return true
	}
	return len(l.waiting) > 0 && now >= l.nextAsk()
}

// onlyReturns reports whether there is nothing to ask for: what only gives back does not tell whether the
// configuration is still the same.
func (l *Line) onlyReturns() bool { return len(l.front)+len(l.waiting)+len(l.releases) == 0 }

// nextAsk is when to ask for those in the line.
func (l *Line) nextAsk() Local {
	at := l.askAt
	if l.urgentAt != 0 {
		at = min(at, l.urgentAt)
	}
	return max(at, l.gathering.until)
}

// answered handles the result of a call. If serves, whoever made the call makes no other: the
// rest is left to a runner.
func (l *Line) answered(c *Call, r Reply, serves bool, now Local) {
	if c.beside {
		if r.Err == nil {
			l.checked(c, r, now)
			l.kick()
		}
		return
	}
	l.callSince = 0
	var again *Call
	switch {
	case r.Err != nil && c.batch == nil:
		l.checkFailed(r, now)
	case c.batch == nil:
		l.checked(c, r, now)
	default:
		again = l.batchAnswered(c, r, now)
	}
	switch {
	case l.almostKnown > 0 && (l.roundTrips.n > l.almostKnown || c.batch != nil && again == nil):
		l.confirmed()
	case c.batch == nil && (c.first || l.measuring > 0):
		l.measured(c, now)
	}
	switch {
	case again != nil:
		at := now.Add(l.out.After)
		again.Beside = l.checkBeside(at)
		l.callSince, l.out.Call = at, again
	case l.out.After > 0:
	case serves && (l.toAsk(now) || l.toCheck(now)):
		l.out.Start = true
	case serves:
		l.rest(now)
	default:
		l.next(now)
	}
}
