package throttle

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// mostOf is which part of a limit fleets use at least, wherever Redis is.
const mostOf = 0.92

// TestFleetsUseWhatThereIs: processes whose callers come back at once get nearly everything of a limit, from its first
// interval on: of a short one, with a Redis that is far away, and after a pause.
func TestFleetsUseWhatThereIs(t *testing.T) {
	t.Parallel()
	fleets := uint64(quarter(40))
	if nightly() {
		fleets = 300
	}
	sameFleets(t, "TestFleetsUseWhatThereIs", fleets, func(t *testing.T, r *replayed) {
		pause := r.crew()
		best := r.greedy(r.length-10*r.procs[0].way, false, pause) // the first calls find out how far Redis is
		burst := int(r.limits[0].rate.Permits)
		if pause.until > 0 {
			best -= burst // those that are near when it begins count
		}
		if r.procs[0].way >= ms(60) {
			best -= burst // the first come too late
		}
		for _, p := range r.procs {
			for range 100 / len(r.procs) {
				r.after(0, (&steadyCaller{r: r, p: p}).next)
			}
		}
		r.until(r.begin.Add(r.length), always)
		had := len(r.uses)
		r.end()
		if float64(had) < mostOf*float64(best) {
			t.Errorf("%d permits in %v, of %d that were to be had, with a pause of %v, of\n%s", had, r.length, best, micros(pause.until-pause.at), r.describe())
		}
	})
}

// addProcess adds a process that wants permits of all limits.
func (r *replayed) addProcess(way time.Duration) *simulatedProcess {
	i := len(r.procs)
	p := &simulatedProcess{s: r.simulation, no: i, name: fmt.Sprintf("process%d", i), way: way, heeds: r.random.IntN(2) == 0, hears: r.random.IntN(2) == 0}
	p.random = rand.New(rand.NewPCG(r.seed, uint64(1<<32+i)))
	var err error
	p.client, err = New(p, Options{ID: p.name})
	check(r, err)
	p.queues = []simulatedQueue{{limits: r.limits}}
	r.procs = append(r.procs, p)
	return p
}

// crew draws a limit, the processes that wait for it, and a pause, which one fleet in two has.
func (r *replayed) crew() (pause pauseChange) {
	interval := []time.Duration{ms(10), ms(100), ms(250), time.Second, 4 * time.Second}[r.random.IntN(5)]
	l := &simulatedLimit{name: "limit", rate: Rate{Interval: interval, Permits: 1 + r.random.Int64N(40), Smooth: r.random.IntN(3) == 0}}
	r.set(l)
	r.length = max(6*interval, 8*time.Second)
	way := []time.Duration{us(30), us(100), us(500), ms(5), ms(12), ms(35), ms(60), ms(90)}[r.random.IntN(8)]
	way = min(way, interval/8) // there are not so many callers that some always wait if it is further away
	if interval < ms(100) {    // what comes later than half its guard is of no use
		way = min(way, interval/40)
	}
	if r.seed%4 < 2 {
		r.late = ms(1)
	}
	for range 1 + r.random.IntN(3) {
		r.addProcess(way)
	}
	if r.seed%2 == 0 {
		return pause
	}
	at, lasts := r.length/3, time.Duration(1+r.random.Int64N(int64(2*time.Second)))
	pause.at = r.begin.Add(at).UnixMicro()
	pause.until = r.begin.Add(at + lasts).UnixMicro()
	r.after(at-way, func() {
		keys := script.KeysOf(l.name, r.procs[0].name)
		m := message{"pause", append(keys[:], script.Prefix(l.name)+":reply:pause"), []any{r.now() + 10_000_000, int64(0), lasts.Microseconds(), ""}}
		r.procs[0].send(r, m, func(any, error) { r.changed(r.procs[0], l.name, line.Doubt) })
	})
	return pause
}
