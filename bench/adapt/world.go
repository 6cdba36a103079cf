package main

import (
	"math/rand/v2"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/hiddenapi"
)

// window is the interval of every API here, and the step of every picture.
const window = time.Second

// scenario is an API, a fleet that always has work for it, and what happens to the API.
type scenario struct {
	Kind    hiddenapi.Kind
	Cap     int64 // at the beginning
	Workers int   // processes
	Late    bool  // replies take up to 2 s, instead of a few hundredths of a second
	Windows int
	// Scattered requests are under way for 26 ms on average, instead of 2.5.
	Scattered bool
	// What happens at the window Change:
	Change int
	To     int64         // the API's limit is this from then on
	Other  time.Duration // or another client takes half of it, for this long
	Fails  time.Duration // or every request fails with 500, for this long
}

// most is the highest limit that the API has in the run.
func (s scenario) most() int64 { return max(s.Cap, s.To) }

// capAt is what the API leaves to the fleet in a window.
func (s scenario) capAt(w int) float64 {
	switch {
	case s.Change > 0 && w >= s.Change && s.To > 0:
		return float64(s.To)
	case s.Change > 0 && w >= s.Change && w < s.Change+int(s.Other/window):
		return float64(s.Cap) - float64(s.Cap/2)
	}
	return float64(s.Cap)
}

// mean is how long a request takes, on average.
func (s scenario) mean() time.Duration {
	if s.Late {
		return 1025 * time.Millisecond
	}
	return 50 * time.Millisecond
}

// outcome is what became of a request.
type outcome int

const (
	accepted outcome = iota
	refused
	failed
)

// rule decides when requests are sent, and learns from their outcomes.
type rule interface {
	// ask calls send when a slot may send a request, now or later.
	ask(slot int, send func())
	// saw reports the outcome of a slot's request, whose permit was granted at the time then.
	// It returns how long the slot rests.
	saw(slot int, then time.Duration, o outcome) time.Duration
	// limit is what the fleet allows itself in a window; 0: it has no limit yet.
	limit() float64
}

// world is one run: an API, a fleet and a rule, in fake time.
type world struct {
	agenda
	scenario
	random *rand.Rand
	api    *hiddenapi.Limit
	rule   rule
	seen   []seen // by window
	limits []change
	down   bool // the API fails
}

// seen is what the API saw of the fleet in one window, and the limit at its end.
type seen struct {
	Accepted, Refused, Failed int
	Limit                     float64
}

// change is a limit that holds from a time on.
type change struct {
	at time.Duration
	to float64
}

// run runs a scenario with the rule that with makes. The same seed gives the same run.
func run(s scenario, seed uint64, with func(*world) (rule, error)) (*world, error) {
	w := &world{scenario: s, random: rand.New(rand.NewPCG(seed, 20))}
	offset := time.Duration(0)
	if s.Kind == hiddenapi.Fixed {
		offset = time.Duration(w.random.Int64N(int64(window)))
	}
	var err error
	if w.api, err = hiddenapi.NewLimit(s.Kind, s.Cap, window, offset); err != nil {
		return nil, err
	}
	if w.rule, err = with(w); err != nil {
		return nil, err
	}
	w.seen = make([]seen, s.Windows)
	w.note()
	for i := range s.Windows {
		w.at(time.Duration(i+1)*window-1, func() { w.seen[i].Limit = w.rule.limit() })
	}
	w.plan()
	// Enough slots for four times the limit, at least one in each process.
	slots := max(s.Workers, int(4*float64(s.most())*s.mean().Seconds()))
	for i := range slots {
		w.at(time.Duration(w.random.Int64N(int64(window/10))), func() { w.work(i) })
	}
	w.run(time.Duration(s.Windows) * window)
	return w, nil
}

// plan plans what the scenario does at its change.
func (w *world) plan() {
	if w.Change == 0 {
		return
	}
	at := time.Duration(w.Change) * window
	if w.To > 0 {
		w.at(at, func() { w.api.SetQuota(w.To) })
	}
	if w.Fails > 0 {
		w.at(at, func() { w.down = true })
		w.at(at+w.Fails, func() { w.down = false })
	}
	if half := w.Cap / 2; w.Other > 0 && half > 0 {
		for t := at; t < at+w.Other; t += window / time.Duration(half) {
			w.at(t, func() {
				if w.api.Fits(w.now, 1) {
					w.api.Take(w.now, 1)
				}
			})
		}
	}
}

// process is the number of the process to which a slot belongs.
func (w *world) process(slot int) int { return slot % w.Workers }

// work is one slot: it asks, sends, gets the reply, and begins again.
func (w *world) work(slot int) {
	w.rule.ask(slot, func() {
		then, took := w.now, w.latency()
		var o outcome
		w.at(w.now+min(w.way(), took), func() { o = w.arrive() })
		w.at(w.now+took, func() {
			rest := w.rule.saw(slot, then, o)
			w.note()
			w.at(w.now+rest, func() { w.work(slot) })
		})
	})
}

// way is how long a request takes to the API on an open connection.
func (w *world) way() time.Duration {
	scatter := 1500 * time.Microsecond
	if w.Scattered {
		scatter = 25 * time.Millisecond
	}
	return time.Millisecond + time.Duration(w.random.ExpFloat64()*float64(scatter))
}

// latency is how long a request takes, with its reply.
func (w *world) latency() time.Duration {
	if w.Late {
		return 50*time.Millisecond + time.Duration(w.random.Float64()*float64(1950*time.Millisecond))
	}
	return min(10*time.Millisecond+time.Duration(w.random.ExpFloat64()*float64(40*time.Millisecond)), time.Second)
}

// arrive handles a request at the API.
func (w *world) arrive() outcome {
	s := &w.seen[min(int(w.now/window), w.Windows-1)]
	switch {
	case w.down:
		s.Failed++
		return failed
	case !w.api.Fits(w.now, 1):
		s.Refused++
		return refused
	}
	w.api.Take(w.now, 1)
	s.Accepted++
	return accepted
}

// note records the limit if it has changed.
func (w *world) note() {
	if l := w.rule.limit(); len(w.limits) == 0 || w.limits[len(w.limits)-1].to != l {
		w.limits = append(w.limits, change{w.now, l})
	}
}
