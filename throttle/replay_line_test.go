package throttle

import (
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// replayedLine is a line, and does for it what a driver does.
type replayedLine struct {
	r     *replayed
	p     *simulatedProcess
	no    int
	names []string
	l     *line.Line
	asks  map[*line.Waiter]*replayedAsk
	order []*replayedAsk // the asks, in the order in which they came

	told  []int64 // what others of the process have been told that it has reserved
	drawn int64   // from what was lent since the last step
	wakes int
	pause func() // does at once what waits for a pause to end; nil if nothing waits
}

// reply is the key of its last reply.
func (l *replayedLine) reply() string {
	return fmt.Sprintf("%s:reply:%s:line%d", script.Prefix(l.names[0]), l.p.name, l.no)
}

// local is now, in the time of lines.
func (r *replayed) local() line.Local { return line.Local(time.Since(r.begin) + 1000*time.Hour) }

// in is how long it is until a line's clock shows t.
func (r *replayed) in(t line.Local) time.Duration { return t.Sub(r.local()) }

// step tells the line what happened, and does what has to be done then.
func (l *replayedLine) step(e line.Event) {
	r := l.r
	if l.p.dead() {
		return
	}
	r.events[l.l.Phase()+" x "+e.Kind.String()]++
	a := &l.l.Around
	a.Answered, a.FirstCall, a.Hears, a.TimerLate = l.p.knowsRedis, l.p.firstCall, l.p.hears, r.late
	a.Drawn, l.drawn = l.drawn, 0
	for i, name := range l.names {
		a.Elsewhere[i] = 0
		for _, other := range r.lines {
			if k := slices.Index(other.names, name); other != l && other.p == l.p && k >= 0 {
				a.Elsewhere[i] += other.l.Reserved(k)
			}
		}
	}
	var out line.Actions
	l.l.Step(e, r.local(), &out)
	if err := l.l.Sound(); err != nil {
		r.broken("who waits has no grant, and who has one does not wait", "%v, after %v", err, e.Kind)
	}
	for _, t := range out.Answers {
		if ask := l.asks[t.Waiter]; ask != nil {
			answer := t.Answer
			r.after(0, func() { ask.told(answer) })
		}
	}
	if out.WayKnown {
		l.p.known = l.l.Way()
	}
	l.p.lateHere += out.Late
	if out.Wake != 0 {
		l.wakes++
		no := l.wakes
		r.after(r.in(out.Wake), func() {
			if no == l.wakes {
				l.step(line.Event{Kind: line.Tick})
			}
		})
	}
	if out.Start {
		l.wakes++
		r.after(0, func() { l.step(line.Event{Kind: line.Ready}) })
	}
	if out.Poke && l.pause != nil {
		l.pause()
	}
	ask := e.Waiter
	switch {
	case out.Call != nil && e.Answer.Shared: // somebody else goes on
		call := out.Call
		r.after(0, func() { l.step(line.Event{Kind: line.Again, Call: call}) })
	case out.Call != nil && e.Kind == line.Beside && r.random.IntN(2) == 0: // there is no other connection yet
		call := out.Call
		r.after(6*l.p.way, func() { l.call(call, false) })
	case out.Call != nil:
		call, serves := out.Call, e.Serves
		l.pauseFor(out.After, func() { l.call(call, serves) })
	case out.After > 0:
		l.pauseFor(out.After, func() { l.step(line.Event{Kind: line.Ready}) })
	}
	if e.Kind == line.Due {
		l.asks[ask].late = out.Late > 0
		l.asks[ask].handedOut(out.Taken, out.Latest, out.Sleep, out.Early)
	}
}

// pauseFor does something after a pause, which may be cut short.
func (l *replayedLine) pauseFor(d time.Duration, do func()) {
	if d <= 0 {
		do()
		return
	}
	done := false
	once := func() {
		if !done {
			done, l.pause = true, nil
			do()
		}
	}
	l.pause = once
	l.r.after(d, once)
}

var replayedNames = map[*redis.Script]string{script.Acquire: "acquire", script.Fast: "fast", script.Epoch: "epoch"}

// call makes a call; serves says that the caller of a request makes it.
func (l *replayedLine) call(c *line.Call, serves bool) {
	r := l.r
	if l.p.firstCall == 0 {
		l.p.firstCall = r.local()
	}
	if short := c.Shares(); short != nil && l.p.shares {
		l.share(c, short)
		return
	}
	sent, over := r.local(), false
	if c.Beside > 0 {
		r.after(c.Beside, func() {
			if !over {
				l.step(line.Event{Kind: line.Beside})
			}
		})
	}
	keys, args := c.With(sent)
	if c.Script == script.Acquire && l.p.faults == 0 { // else it may be a repeated one
		l.judgeShare(readBatchCall(args))
	}
	l.p.send(r, message{replayedNames[c.Script], slices.Clone(keys), slices.Clone(args)}, func(value any, err error) {
		over = true
		if err != nil {
			err = script.Classify(err)
		}
		if err == nil || !script.Transient(err) {
			l.p.knowsRedis = true
		}
		if err != nil && serves {
			l.step(line.Event{Kind: line.Again, Call: c})
			return
		}
		l.step(line.Event{Kind: line.Answered, Call: c, Serves: serves, Answer: line.Reply{Value: value, Err: err, Sent: sent}})
	})
}

// judgeShare checks that a call tells of everything that its process has reserved, through whatever line.
func (l *replayedLine) judgeShare(call batchCall) {
	for i, name := range l.names {
		all := int64(0)
		for _, other := range l.r.lines {
			if k := slices.Index(other.names, name); other.p == l.p && k >= 0 {
				all += other.l.Reserved(k)
			}
		}
		if call.ahead[i] < all {
			l.r.broken("shares are those of clients", "%s has reserved %d permits of %s, and its call says %d", l.p.name, all, name, call.ahead[i])
		}
	}
}

// draw takes one permit of each member from what the line lends.
func (l *replayedLine) draw() bool {
	n, until := l.l.Lend(l.r.local())
	if l.drawn >= n || l.r.local() >= until {
		return false
	}
	l.drawn++
	return true
}

// leaveAll ends all waits.
func (l *replayedLine) leaveAll() {
	for _, a := range slices.Clone(l.order) {
		a.leave()
	}
}
