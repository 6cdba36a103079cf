package throttle_test

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"
)

// call is a call of a Limiter, as its caller saw it: in us since the beginning, on the clock that
// Redis also uses.
type call struct {
	client     int
	verb       verb
	n          int64
	begin, end int64
	granted    bool  // tried
	failed     bool  // tried: an error, so nobody knows whether it took permits
	exchanged  int64 // tried: how often it may have got permits that were too old, and gave them back for others
}

type verb int

const (
	tried verb = iota
	released
	mayHaveTaken // what a call that failed did, if it reached Redis
	gaveBack     // and gives back what it had got
)

// linear are the operations that a limiter must have done, each at one time between its beginning
// and its end. A call that failed may have taken permits, which its Client gives back with what
// it asks for next at the latest.
func linear(calls []call) []porcupine.Operation {
	var ops []porcupine.Operation
	last := int64(0)
	for _, c := range calls {
		last = max(last, c.end)
	}
	add := func(c call, id int) {
		ops = append(ops, porcupine.Operation{ClientId: c.client, Input: input{c, id}, Call: c.begin, Return: c.end})
	}
	unknown := 0
	may := func(c call, until int64) {
		unknown++
		c.end = until
		c.verb = mayHaveTaken
		add(c, unknown)
		c.verb = gaveBack
		add(c, unknown)
	}
	for _, c := range calls {
		until := c.end
		if c.failed {
			until = last
			for _, next := range calls {
				if next.client == c.client && next.begin >= c.end && !next.failed {
					until = min(until, next.end)
				}
			}
			may(c, until)
		} else {
			add(c, 0)
		}
		for range c.exchanged {
			may(c, until)
		}
	}
	return ops
}

// input is a call, and of one that may have taken permits its number.
type input struct {
	call
	id int
}

// quota is what a limiter should be: permits come back after span, by the server's clock.
type quota struct {
	permits int64
	span    int64 // us
}

// grants is what a limiter may have granted, and when: its zone has the time of the latest
// operation and those of the grants. The only time in it is that of the server, and the callers
// know only what that was before and after. So it stands for all the logs that are possible.
type grants struct {
	zone   zone
	held   []held // in their order; the i-th is time firstHeld+i of the zone
	asking []int  // calls that may have taken permits, and have not given back
}

const (
	beginning = 0
	now       = 1
	firstHeld = 2
)

// held is a grant, id that of the call that may have got it.
type held struct {
	n  int64
	id int
}

// model is the specification of a limiter, for porcupine.
func (q quota) model() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{grants{zone: newZone(1)}} },
		Step: func(state, in, _ any) []any {
			var after []any
			for _, g := range q.step(state.(grants), in.(input)) {
				after = append(after, g)
			}
			return after
		},
		Equal:             func(a, b any) bool { return a.(grants).equal(b.(grants)) },
		Hash:              func(state any) uint64 { return state.(grants).zone.hash() },
		DescribeOperation: func(in, _ any) string { return in.(input).String() },
		DescribeState:     func(state any) string { return fmt.Sprint(state.(grants).held) },
	}
	return m.ToModel()
}

func (in input) String() string {
	switch in.verb {
	case released:
		return fmt.Sprintf("released %d", in.n)
	case mayHaveTaken:
		return fmt.Sprintf("may have taken %d (%d)", in.n, in.id)
	case gaveBack:
		return fmt.Sprintf("gave back %d (%d)", in.n, in.id)
	}
	return fmt.Sprintf("tried %d: %v", in.n, in.granted)
}

// step returns the states that are possible after an operation. None: the operation was not
// right.
func (q quota) step(g grants, in input) []grants {
	if !g.pass(in.begin, in.end) {
		return nil
	}
	switch in.verb {
	case released:
		return q.release(g, in.n)
	case mayHaveTaken:
		g.asking = append(slices.Clip(g.asking), in.id)
		slices.Sort(g.asking)
		return append(q.grant(g, in.n, in.id), g)
	case gaveBack:
		return q.giveBack(g, in.n, in.id)
	}
	if in.granted {
		return q.grant(g, in.n, 0)
	}
	return q.deny(g, in.n)
}

// pass lets the time come to some time from begin to end.
func (g *grants) pass(begin, end int64) (ok bool) {
	g.zone = g.zone.later(now)
	if g.zone, ok = g.zone.within(now, beginning, end); ok {
		g.zone, ok = g.zone.within(beginning, now, -begin)
	}
	return ok
}

// grant is right if all but permits-n of what was granted is span ago.
func (q quota) grant(g grants, n int64, id int) []grants {
	over := n - q.permits
	for _, h := range g.held {
		over += h.n
	}
	expired := 0
	for ; over > 0 && expired < len(g.held); expired++ {
		over -= g.held[expired].n
	}
	if over > 0 || !q.expire(&g, expired) {
		return nil
	}
	g.zone = g.zone.with(now)
	g.held = append(slices.Clip(g.held), held{n, id})
	return []grants{g}
}

// deny is right if more than permits-n of what was granted is less than span ago.
func (q quota) deny(g grants, n int64) []grants {
	left := q.permits - n
	for i, h := range slices.Backward(g.held) {
		if left -= h.n; left < 0 {
			if !q.live(&g, i) {
				return nil
			}
			return []grants{g}
		}
	}
	return nil
}

// release takes permits off the oldest grants that count, whichever they are.
func (q quota) release(g grants, n int64) (after []grants) {
	for expired := range len(g.held) + 1 {
		g := g
		if !q.live(&g, expired) || !q.expire(&g, expired) {
			continue
		}
		g.held = slices.Clone(g.held)
		left := n
		for i := range g.held {
			x := min(left, g.held[i].n)
			g.held[i].n -= x
			left -= x
		}
		g.tidy()
		after = append(after, g)
	}
	return after
}

// giveBack takes back what the call with that id got, if it got anything. If others released
// that, as the oldest, or its time is over, it may be taken off a grant that was made a little
// later: as in a log in which the two are one entry.
func (q quota) giveBack(g grants, n int64, id int) (after []grants) {
	k := slices.Index(g.asking, id)
	if k < 0 {
		return nil
	}
	g.asking = slices.Delete(slices.Clone(g.asking), k, k+1)
	mine := slices.IndexFunc(g.held, func(h held) bool { return h.id == id })
	if mine < 0 {
		return []grants{g}
	}
	had := g.held[mine].n
	g.held = slices.Clone(g.held)
	g.held[mine] = held{}
	keep := func(g grants) {
		g.tidy()
		after = append(after, g)
	}
	if live := g; had >= n && q.live(&live, mine) {
		keep(live)
	}
	over, ok := g.zone, true
	if had >= n {
		over, ok = over.within(firstHeld+mine, now, -q.span)
	}
	if !ok {
		return after
	}
	g.zone = over
	keep(g)
	owed := n
	if had < n {
		owed -= had // the rest was released, instead of another's
	}
	for i := mine + 1; i < len(g.held); i++ {
		if other := g; other.held[i].n >= owed {
			if other.zone, ok = g.zone.within(firstHeld+i, firstHeld+mine, q.span/256+1); ok {
				other.held = slices.Clone(g.held)
				other.held[i].n -= owed
				keep(other)
			}
		}
	}
	return after
}

// live says that the i-th grant still counts, if there is one.
func (q quota) live(g *grants, i int) (ok bool) {
	if i == len(g.held) {
		return true
	}
	g.zone, ok = g.zone.within(now, firstHeld+i, q.span-1)
	return ok
}

// expire says that the first grants no longer count.
func (q quota) expire(g *grants, count int) (ok bool) {
	if count == 0 {
		return true
	}
	if g.zone, ok = g.zone.within(firstHeld+count-1, now, -q.span); !ok {
		return false
	}
	g.held = slices.Clone(g.held)
	for i := range count {
		g.held[i].n = 0
	}
	g.tidy()
	return true
}

// tidy forgets grants of which nothing is left, unless somebody may still give them back.
func (g *grants) tidy() {
	var left []held
	for i, h := range slices.Backward(g.held) {
		if h.n > 0 || slices.Contains(g.asking, h.id) {
			left = append(left, h)
		} else {
			g.zone = g.zone.without(firstHeld + i)
		}
	}
	slices.Reverse(left)
	g.held = left
}

func (g grants) equal(other grants) bool {
	return slices.Equal(g.held, other.held) && slices.Equal(g.asking, other.asking) && g.zone.equal(other.zone)
}
