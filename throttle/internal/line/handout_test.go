package line

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// desk steps a line of one limiter, and answers its calls.
type desk struct {
	*testing.T
	l   *Line
	now Local
	out Actions
}

func newDesk(t *testing.T) *desk {
	d := &desk{T: t, now: Local(time.Hour)}
	d.l = New(Config{
		Client: "id", Reply: "{api}:reply", Members: []script.Keys{script.KeysOf("api", "id")},
		Random: rand.New(rand.NewPCG(1, 2)),
	})
	d.l.Around.Answered = true
	return d
}

func (d *desk) step(e Event) *Actions {
	d.l.Step(e, d.now, &d.out)
	return &d.out
}

// remote is what Redis's clock shows now.
func (d *desk) remote() int64 { return 1_700_000_000_000_000 + time.Duration(d.now).Microseconds() }

// waits has somebody ask for a permit.
func (d *desk) waits(reservation bool) *Waiter {
	d.Helper()
	w := NewWaiter([]int64{1}, d.now, 0, reservation, false)
	d.step(Event{Kind: Arrive, Waiter: w})
	return w
}

// asked returns the call that is to be made now.
func (d *desk) asked() *Call {
	d.Helper()
	c := d.step(Event{Kind: Ready}).Call
	if c == nil {
		d.Fatal("nothing is asked")
	}
	return c
}

// placed answers a call with a grant that is due ahead from now, of a limit of 1/1s.
func (d *desk) placed(c *Call, ahead time.Duration) *Actions {
	settings := "seal 1 1000000 10000 0 0 0"
	if d.l.config[0].Rate > 0 {
		settings = ""
	}
	changed := 0
	if settings != "" {
		changed, settings = 1, " "+settings
	}
	value := fmt.Sprintf("%d 0 %d 7 %d%s 0 1 1 %d 0", d.remote(), d.remote(), changed, settings, ahead.Microseconds())
	return d.step(Event{Kind: Answered, Call: c, Answer: Reply{Value: value, Sent: d.now}})
}

// A grant that was exchanged for a later one, just when its waiter was about to take the
// permits, is not taken early.
func TestChangedPlaceIsNotTakenEarly(t *testing.T) {
	d := newDesk(t)
	w := d.waits(true)
	d.placed(d.asked(), time.Second)
	if out := d.step(Event{Kind: Due, Waiter: w}); out.Taken || out.Sleep < 990*time.Millisecond {
		t.Errorf("taken %v, or in %v; its turn is in 1s", out.Taken, out.Sleep)
	}
	d.now = d.now.Add(time.Second)
	d.step(Event{Kind: Due, Waiter: w})
	call := d.asked()
	d.step(Event{Kind: Answered, Call: call, Answer: Reply{Value: fmt.Sprint(d.remote(), " 7"), Sent: d.now}})
	if out := d.step(Event{Kind: Due, Waiter: w}); !out.Taken {
		t.Errorf("not taken at its turn: %+v", *out)
	}
}

// A permit that was due when it was granted, and was not taken for a while, does not become
// fresh again by a repeated reply of a Redis whose clock was set back.
func TestPermitIsNoYoungerForASetClock(t *testing.T) {
	d := newDesk(t)
	old := d.waits(true)
	d.placed(d.asked(), 0)
	d.waits(false)
	again := d.asked()
	d.now = d.now.Add(time.Second)
	repeated := fmt.Sprintf("%d 0 %d 7 0 0 1 1 1000000 0", d.remote()-time.Hour.Microseconds(), d.remote())
	d.step(Event{Kind: Answered, Call: again, Answer: Reply{Value: repeated, Sent: d.now}})
	if out := d.step(Event{Kind: Due, Waiter: old}); out.Taken {
		t.Error("taken a second after it was granted; it is good for 5 ms")
	}
}

// A caller that was handed its permits and stood still until their guard had passed does not use them: it gives
// them back and gets others.
func TestMissedPermitsAreExchanged(t *testing.T) {
	d := newDesk(t)
	w := d.waits(false)
	d.placed(d.asked(), 0)
	out := d.step(Event{Kind: Due, Waiter: w})
	if guard := out.Latest.Sub(d.now); !out.Taken || guard != 7500*time.Microsecond {
		t.Fatalf("taken %v, good for %v; three quarters of its guard are 7.5ms", out.Taken, guard)
	}
	d.now = d.now.Add(20 * time.Millisecond)
	if out = d.step(Event{Kind: Missed, Waiter: w}); out.Stale != 1 || out.Grants != 0 {
		t.Errorf("%+v", *out)
	}
	if n := len(d.l.returns); n != 1 {
		t.Errorf("%d grants go back", n)
	}
	if d.step(Event{Kind: Due, Waiter: w}).Taken {
		t.Error("taken before there are others")
	}
	d.placed(d.asked(), 0)
	if out = d.step(Event{Kind: Due, Waiter: w}); !out.Taken || out.Grants != 1 {
		t.Errorf("the others are not taken: %+v", *out)
	}
}

// If somebody cancels its reservation meanwhile, it gets no others.
func TestMissedAndCancelled(t *testing.T) {
	d := newDesk(t)
	w := d.waits(true)
	d.placed(d.asked(), 0)
	if !d.step(Event{Kind: Due, Waiter: w}).Taken {
		t.Fatal("not taken")
	}
	d.step(Event{Kind: Leave, Waiter: w})
	d.now = d.now.Add(20 * time.Millisecond)
	out := d.step(Event{Kind: Missed, Waiter: w})
	if len(out.Answers) != 1 || !errors.Is(out.Answers[0].Answer.Err, context.Canceled) || len(d.l.returns) != 1 || len(d.l.front) > 0 {
		t.Errorf("%+v, %d go back, %d ask again", out.Answers, len(d.l.returns), len(d.l.front))
	}
}
