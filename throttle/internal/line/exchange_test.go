package line

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// crowd is many waiters, each with permits that are due in 0.8s or a little later.
type crowd struct {
	*desk
	due   Local
	apart time.Duration // their times
	ws    []*Waiter
}

func newCrowd(t *testing.T, n int, apart time.Duration, deadlines bool) *crowd {
	c := &crowd{desk: newDesk(t), apart: apart}
	c.due = c.now.Add(800 * time.Millisecond)
	for i := range n {
		until := Local(0)
		if deadlines { // each its own
			until = c.due.Add(time.Duration(n)*apart + time.Duration(i+5)*time.Millisecond)
		}
		w := NewWaiter([]int64{1}, c.now, until, false, false)
		c.ws = append(c.ws, w)
		c.step(Event{Kind: Arrive, Waiter: w})
	}
	for range 10 {
		c.now = c.now.Add(10 * time.Millisecond)
		for call := c.step(Event{Kind: Ready}).Call; call != nil; call = c.granted(call).Call {
		}
	}
	if len(c.l.holders) != n {
		t.Fatalf("%d of %d have grants", len(c.l.holders), n)
	}
	return c
}

// granted answers a call with what it asks for.
func (c *crowd) granted(call *Call) *Actions {
	settings := "1 seal 1000 1000000 10000 0 0 0"
	if c.l.config[0].Rate > 0 {
		settings = "0"
	}
	value := fmt.Sprintf("%d 0 %d 7 %s 0", c.remote(), c.remote(), settings)
	for i, ws := range call.batch.waiters {
		value += fmt.Sprint(" ", len(ws))
		for _, w := range ws {
			value += fmt.Sprint(" 1 ", max(c.due.Add(time.Duration(w.no)*c.apart).Sub(c.now), call.batch.request.Runs[i].Lead).Microseconds())
		}
		value += " 0"
	}
	return c.step(Event{Kind: Answered, Call: call, Answer: Reply{Value: value, Sent: c.now}})
}

// exchanged counts how often each waiter asks in a call in which it gives its grant back. It fails if one does not ask, or
// has neither a grant nor a turn in the call.
func (c *crowd) exchanged(call *Call, times map[*Waiter]int) {
	c.Helper()
	asks := map[*Waiter]bool{}
	for _, w := range call.batch.inCall() {
		asks[w] = true
	}
	var lost []string
	for _, r := range call.batch.returns {
		times[r.by]++
		if !asks[r.by] {
			lost = append(lost, fmt.Sprint(r.by.no))
		}
	}
	if len(lost) > 0 {
		c.Errorf("gave their grants back and got none: %s", strings.Join(lost, " "))
	}
	if n := len(c.l.holders) + len(asks); n != len(c.ws) {
		c.Errorf("%d of %d ask or have a grant", n, len(c.ws))
	}
}

// However many move up, and however often permits are released meanwhile: each of them gives its grant back in the call
// that asks for another one, and each has its turn. When there are no more releases, nobody asks.
func TestAllMoveUp(t *testing.T) {
	for name, c := range map[string]*crowd{
		"deadlines of their own": newCrowd(t, 3*maxRuns/2, 0, true),
		"the same time":          newCrowd(t, 3*maxBatch/2, 0, false),
		"times of their own":     newCrowd(t, 5*maxReturns/2, time.Millisecond, false),
	} {
		t.Run(name, func(t *testing.T) {
			c.T = t
			times := map[*Waiter]int{}
			c.step(Event{Kind: Freed})
			call := c.asked()
			for range 3 { // calls that take long, and others who ask in between
				c.exchanged(call, times)
				c.step(Event{Kind: Freed})
				c.now = c.now.Add(freshFor + 10*time.Millisecond)
				call = c.granted(call).Call
			}
			for calls := 0; call != nil; calls++ {
				if calls == 20 {
					t.Fatal("they ask again and again")
				}
				c.exchanged(call, times)
				call = c.granted(call).Call
			}
			for _, w := range c.ws {
				if times[w] == 0 {
					t.Errorf("waiter %d did not move up", w.no)
				}
			}
		})
	}
}

// Who is late asks after those who move up: its permits are later than theirs.
func TestLateAsksAfterThoseWhoMoveUp(t *testing.T) {
	c := newCrowd(t, maxRuns/2, 0, true)
	late := NewWaiter([]int64{1}, c.now, 0, false, false)
	late.state, late.grant, late.stale = granted, grant{at: script.Remote(c.remote() - 100_000), due: c.now.Add(-100 * time.Millisecond), epochs: []int64{7}}, 1
	c.l.exchangeStale(late, c.now)
	c.step(Event{Kind: Freed})
	asks := c.asked().batch.inCall()
	if len(asks) != len(c.ws)+1 || asks[len(asks)-1] != late {
		t.Errorf("of %d who ask the late one is not the last", len(asks))
	}
}

// If a call comes to Redis too late to be served, those who were to move up with it still do so before the others.
func TestMoveUpAgainAfterALateCall(t *testing.T) {
	c := newCrowd(t, maxRuns, 0, true)
	c.step(Event{Kind: Freed})
	call := c.asked()
	call = c.step(Event{Kind: Answered, Call: call, Answer: Reply{Value: fmt.Sprint(c.remote(), " 5"), Sent: c.now}}).Call
	if first := call.batch.inCall()[0]; first != c.ws[0] {
		t.Errorf("waiter %d asks first", first.no)
	}
}

// Who has been late wants permits that are some round trips away. They do not move up again and again, and never to later.
func TestLateOnesMoveUpOnce(t *testing.T) {
	c := newCrowd(t, 2*maxRuns, 0, true)
	for range 16 {
		c.l.roundTrips.add(25*time.Millisecond, c.now)
	}
	for _, w := range c.ws {
		w.stale = 4 // 400ms
	}
	c.now = c.due.Add(-300 * time.Millisecond)
	times := map[*Waiter]int{}
	c.step(Event{Kind: Freed})
	for call := c.step(Event{Kind: Ready}).Call; call != nil && call.batch != nil; call = c.granted(call).Call {
		c.exchanged(call, times)
		c.now = c.now.Add(25 * time.Millisecond)
		if c.now > c.due {
			t.Fatal("they ask again and again")
		}
	}
	for _, w := range c.ws {
		if w.grant.due > c.due {
			t.Fatalf("waiter %d has a later grant than before", w.no)
		}
	}
}

// Those who have not had room to give back what they had come before those who move up next.
func TestLeftoversComeFirst(t *testing.T) {
	c := newCrowd(t, 4*maxRuns, time.Millisecond, true)
	for _, w := range c.ws[:maxReturns-maxRuns/4] {
		c.step(Event{Kind: Leave, Waiter: w})
	}
	c.ws = c.ws[maxReturns-maxRuns/4:]
	times := map[*Waiter]int{}
	c.step(Event{Kind: Freed})
	for call := c.asked(); call != nil; call = c.granted(call).Call {
		asks := call.batch.inCall()
		for i := range asks[:max(len(asks)-1, 0)] {
			if asks[i].no > asks[i+1].no {
				t.Fatalf("waiter %d asks before waiter %d", asks[i].no, asks[i+1].no)
			}
		}
		if len(call.batch.returns) == 0 || call.batch.returns[0].by != nil {
			c.exchanged(call, times)
		}
	}
}
