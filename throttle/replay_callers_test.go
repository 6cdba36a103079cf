package throttle

import (
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
)

// replayedCaller asks in a loop, in one of several ways.
type replayedCaller struct {
	r    *replayed
	p    *simulatedProcess
	lazy time.Duration
}

// loops reports whether the first queue of a process is for a loop around Acquire alone.
func (r *replayed) loops(p *simulatedProcess) bool { return r.seed%4 < 2 && len(p.queues) > 1 }

func (c *replayedCaller) next() {
	r := c.r
	r.after(time.Duration(r.random.Int64N(int64(c.lazy)+int64(ms(1)))), func() {
		if r.ended || c.p.dead() || c.p.left && c.p.random.IntN(4) > 0 {
			return
		}
		queues := c.p.queues
		if r.loops(c.p) {
			queues = queues[1:]
		}
		q := queues[r.random.IntN(len(queues))]
		if r.ample && r.random.IntN(4) > 0 {
			(&steadyCaller{r: r, p: c.p}).ask(q, c.next)
			return
		}
		c.ask(q, drawCosts(r.random, q))
	})
}

// had notes that the caller got the permits.
func (c *replayedCaller) had(q simulatedQueue, l *replayedLine, w *line.Waiter, ns []int64, handed time.Time, late bool) {
	r, no := c.r, len(c.r.uses)
	use := permitUse{process: c.p, limits: q.limits, ns: ns, at: time.Now(), handed: handed, late: late}
	if r.random.IntN(10) == 0 && q.group == nil && r.mayRelease(q.limits[0]) {
		use.unused = true
		l.step(line.Event{Kind: line.Give, Release: &line.Release{Ns: ns, Done: make(chan line.Answer, 1)}})
	} else if (r.ample || r.random.IntN(4) == 0) && w != nil { // some permits were not used, and go back to their own grant, if it is known
		back := make([]int64, len(ns))
		use.ns = slices.Clone(ns)
		for i, n := range ns {
			back[i] = r.random.Int64N(n + 1)
			use.ns[i] -= back[i]
		}
		r.after(time.Duration(r.random.Int64N(int64(3*time.Second))), func() {
			if c.p.dead() {
				return
			}
			if l.l.Phase() == "closed" { // which refuses it
				r.uses[no].maybe = back
			}
			l.step(line.Event{Kind: line.Give, Release: &line.Release{Ns: back, Of: w, Done: make(chan line.Answer, 1)}})
		})
	}
	r.uses = append(r.uses, use)
}

// ask asks once.
func (c *replayedCaller) ask(q simulatedQueue, ns []int64) {
	r, l := c.r, c.r.lineOf(c.p, q)
	wait := time.Duration(r.random.Int64N(int64([]time.Duration{ms(1), ms(50), time.Second, 20 * time.Second, 40 * 24 * time.Hour}[r.random.IntN(5)])))
	a := &replayedAsk{r: r, l: l, ns: ns}
	a.ends = func(taken bool) {
		if taken {
			c.had(q, l, a.w, ns, a.handed, a.late)
		}
		c.next()
	}
	now := r.local()
	what := r.random.IntN(8)
	switch what {
	case 0, 1, 2, 4:
		a.acquires(0)
	case 3:
		a.acquires(now.Add(wait))
	case 5:
		a.begin(now, true, true)
	default:
		a.begin(now.Add(wait), true, wait <= 0)
	}
	switch {
	case a.over:
	case what == 4: // somebody else ends the wait
		r.after(wait, a.leave)
	case what == 7: // somebody may come back late, or not
		a.away = true
	}
}

// replayedAsk is one request and its caller.
type replayedAsk struct {
	r      *replayed
	l      *replayedLine
	ns     []int64
	w      *line.Waiter
	ends   func(taken bool)
	away   bool          // its caller does something else first
	news   []line.Answer // the latest answer while it did
	told1  bool          // it has got an answer
	over   bool
	stands bool      // it was handed its permits, and does not go on yet
	late   bool      // it was granted, and counted as late
	sleeps int       // sleeps that have ended, or are under way
	handed time.Time // when the line handed its permits out; zero: it drew them
}

// acquires is Entry.Acquire.
func (a *replayedAsk) acquires(until line.Local) {
	if line.IsOne(a.ns) && a.l.draw() {
		a.end(true)
		return
	}
	a.begin(until, false, false)
	if until != 0 {
		a.r.after(a.r.in(until), a.leave)
	}
}

func (a *replayedAsk) begin(until line.Local, reservation, atOnce bool) {
	r := a.r
	a.w = line.NewWaiter(a.ns, r.local(), until, reservation, atOnce)
	a.l.asks[a.w] = a
	a.l.order = append(a.l.order, a)
	a.l.step(line.Event{Kind: line.Arrive, Waiter: a.w, Serves: a.l.p.heeds})
	if latest := a.l.l.Latest(a.w); latest != 0 {
		r.after(r.in(latest), func() {
			if !a.told1 {
				a.leave()
			}
		})
	}
}

// told handles an answer.
func (a *replayedAsk) told(answer line.Answer) {
	first := !a.told1
	a.told1 = true
	a.sleeps++ // a sleep is over
	switch {
	case a.over:
	case a.away && !first: // its caller hears of it when it comes
		a.news = []line.Answer{answer}
	case answer.Err != nil || answer.Denied:
		a.end(false)
	case a.away:
		a.r.after(time.Duration(a.r.random.Int64N(int64(3*time.Second))), func() {
			a.away = false
			switch {
			case a.over:
			case a.r.random.IntN(2) == 0:
				a.leave()
			case a.r.random.IntN(4) == 0:
				a.forget()
			default:
				a.l.step(line.Event{Kind: line.Extend, Waiter: a.w})
				a.due()
				for _, answer := range a.news {
					a.told(answer)
				}
			}
		})
	default:
		a.due()
	}
}

// due asks the line whether the permits are due now.
func (a *replayedAsk) due() {
	if !a.over && !a.l.p.dead() {
		a.l.step(line.Event{Kind: line.Due, Waiter: a.w})
	}
}

func (a *replayedAsk) handedOut(taken bool, latest line.Local, sleep, early time.Duration) {
	if taken {
		a.handed = time.Now()
	}
	switch {
	case taken && latest != 0 && a.r.stalls > 0 && a.r.random.IntN(a.r.stalls) == 0: // it stands still just then
		a.stands = true
		stands := time.Duration(a.r.random.Int64N(int64(min(2*a.r.in(latest), time.Second) + 1)))
		switch a.r.random.IntN(8) { // what else may happen just then
		case 0:
			a.r.after(stands/2, func() { a.r.leaves(a.l.p) })
		case 1, 2, 3, 4:
			a.r.outage(a.l.p)
		}
		a.r.after(stands, func() {
			a.stands = false
			switch {
			case a.over || a.l.p.dead():
			case a.r.local() > latest:
				if a.l.p.left { // nobody gives them back any more
					a.mayCount()
				}
				a.l.step(line.Event{Kind: line.Missed, Waiter: a.w})
			default:
				a.end(true)
			}
		})
	case taken:
		a.end(true)
	case sleep > 0:
		no := a.sleeps
		if a.r.late > 0 && sleep > early { // its timer fires late
			sleep = max(sleep, sleep-early+time.Duration(a.r.random.Int64N(int64(a.r.late))))
		}
		a.r.after(sleep, func() {
			if no == a.sleeps {
				a.due()
			}
		})
	}
}

// mayCount notes that what was granted may count, though its caller does not get it.
func (a *replayedAsk) mayCount() {
	use := permitUse{process: a.l.p, ns: make([]int64, len(a.ns)), maybe: a.ns, at: time.Now().Add(max(a.r.in(a.l.l.Due(a.w)), 0)), none: true}
	for _, name := range a.l.names {
		use.limits = append(use.limits, a.r.limits[slices.IndexFunc(a.r.limits, func(l *simulatedLimit) bool { return l.name == name })])
	}
	a.r.uses = append(a.r.uses, use)
}

// forget is what a caller does that sleeps on its own until its permits are due: the line hears no more of it.
func (a *replayedAsk) forget() {
	a.mayCount()
	a.r.forgotten = append(a.r.forgotten, a)
	a.end(false)
}

// leaveForgotten takes those out whom lines still watch: until they were due and their guard is over, or while they ask for
// others in exchange, after a change.
func (r *replayed) leaveForgotten() {
	for _, a := range r.forgotten {
		guard := int64(0)
		for _, l := range r.limits {
			if slices.Contains(a.l.names, l.name) {
				guard = max(guard, l.changes[len(l.changes)-1].limit.Guard)
			}
		}
		if !a.l.l.Gives(a.w) || a.l.l.Due(a.w).Add(micros(guard)) > r.local() {
			a.l.step(line.Event{Kind: line.Leave, Waiter: a.w})
		}
	}
}

// leave is what a caller does if its context ends, or if it cancels.
func (a *replayedAsk) leave() {
	if a.over {
		return
	}
	a.l.step(line.Event{Kind: line.Leave, Waiter: a.w})
	if !a.stands { // else it goes on, with its permits or without
		a.end(false)
	}
}

func (a *replayedAsk) end(taken bool) {
	if a.over {
		return
	}
	a.over = true
	a.l.order = slices.DeleteFunc(a.l.order, func(b *replayedAsk) bool { return a == b })
	a.ends(taken)
}
