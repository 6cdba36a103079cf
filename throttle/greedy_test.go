package throttle

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/oracle"
)

// groupIntervals are the intervals of limits that one group has: from 10 ms to 30 days.
var groupIntervals = []time.Duration{
	ms(10), ms(25), ms(100), ms(250), time.Second, 10 * time.Second, time.Minute, time.Hour, 24 * time.Hour, 30 * 24 * time.Hour,
}

// lateShare is the share of groups that may have less than 97 % because they wait for a part of a full limit.
const lateShare = 0.045

// TestGroupsUseWhatThereIs: whatever limits a group has, and whatever was used of them before,
// thirty callers get nearly everything that there is for them: what callers would get that knew
// the logs and took each permit as soon as all limits had room. If a limit is full whose log is
// kept in parts, "as soon as" may also be at the end of its part: 14 s later for a limit of one
// hour.
func TestGroupsUseWhatThereIs(t *testing.T) {
	t.Parallel()
	groups := uint64(quarter(40))
	if nightly() {
		groups = 200
	}
	const length = 8 * time.Second
	least, late := 1.0, 0
	sameFleets(t, "TestGroupsUseWhatThereIs", groups, func(t *testing.T, r *replayed) {
		r.length = length
		r.group(2 + r.random.IntN(3))
		best := r.greedy(length, false, pauseChange{})
		inParts := r.greedy(length, true, pauseChange{})
		for range 30 {
			r.after(0, (&steadyCaller{r: r, p: r.procs[0]}).next)
		}
		r.until(r.begin.Add(length), always)
		had := len(r.uses)
		r.end()
		switch used := float64(had) / float64(max(best, 1)); {
		case best == 0 && had == 0:
		case had > best || used < 0.97 && had < inParts:
			t.Errorf("%d permits in %v, and %d were to be had, %d in parts, of\n%s", had, length, best, inParts, r.describe())
		case used < 0.97:
			late++
		default:
			least = min(least, used)
		}
	})
	t.Logf("%d groups: %d wait for a part of a full limit; the others had at least %.1f %% of what there is", groups, late, 100*least)
	if float64(late) > lateShare*float64(groups) && os.Getenv("JOBTHROTTLE_SEED") == "" {
		t.Errorf("%d of %d groups wait for a part of a full limit, want at most %.1f %%", late, groups, 100*lateShare)
	}
}

// sameFleets runs the fleets of the seeds from 1 on, one after the other, or the one of JOBTHROTTLE_SEED. Unlike those of
// eachFleet they are the same each time: how many of them fall short is part of what is judged.
func sameFleets(t *testing.T, replays string, fleets uint64, run func(t *testing.T, r *replayed)) {
	first := uint64(1)
	if seed, err := strconv.ParseUint(os.Getenv("JOBTHROTTLE_SEED"), 10, 64); err == nil {
		first, fleets = seed, seed
	}
	for seed := first; seed <= fleets; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &replayed{simulation: emptySimulation(t, seed), hash: fnv.New64a(), events: make(map[string]int)}
				r.replays = replays
				run(t, r)
			})
		})
	}
}

// group draws the limits that one process has in one group.
func (r *replayed) group(members int) {
	for i := range members {
		interval := groupIntervals[r.random.IntN(len(groupIntervals))]
		rate := Rate{Interval: interval, Permits: 1 + r.random.Int64N(int64([]int{10, 100, 1000}[r.random.IntN(3)]))}
		if interval >= time.Minute {
			rate.Permits = 1 + r.random.Int64N(10_000)
		}
		l := &simulatedLimit{name: fmt.Sprintf("limit%d", i), rate: rate}
		r.set(l)
		if interval >= 250*time.Millisecond && r.random.IntN(3) > 0 {
			r.fillLog(l, false)
		}
	}
	p := &simulatedProcess{s: r.simulation, name: "process0", way: 50 * time.Microsecond, heeds: true}
	p.random = rand.New(rand.NewPCG(r.seed, 1<<32))
	var err error
	p.client, err = New(p, Options{ID: p.name})
	check(r, err)
	q := simulatedQueue{limits: r.limits}
	p.queues = []simulatedQueue{q}
	r.procs = append(r.procs, p)
}

// greedy is how many permits of each limit are available in length, one after the other; with
// inParts, each as late as the log of a full limit allows. None is available in the pause, if there is one.
func (r *replayed) greedy(length time.Duration, inParts bool, pause pauseChange) (n int) {
	from := time.Now().UnixMicro()
	end := from + length.Microseconds()
	asks := make([]oracle.Ask, len(r.limits))
	for i, l := range r.limits {
		asks[i] = oracle.Ask{Limit: oracleLimit(l.rate), Log: l.fill, Permits: 1, Buckets: inParts && l.filled > oracle.Parts}
	}
	for at := from; ; n++ {
		plan := oracle.Plan(asks...)
		if inParts {
			at = plan.Latest(at)
		} else {
			at = plan.Earliest(at)
		}
		if at >= pause.at && at < pause.until {
			if at = plan.Earliest(pause.until); inParts {
				at = plan.Latest(pause.until)
			}
		}
		if at >= end {
			return n
		}
		for i := range asks {
			asks[i].Log = asks[i].Log.After(asks[i].Limit.Cutoff(at)).With(at, 1)
		}
	}
}

// steadyCaller acquires one of each, again and again.
type steadyCaller struct {
	r     *replayed
	p     *simulatedProcess
	rests bool // now and then
}

func (c *steadyCaller) next() {
	if c.r.ended || c.p.dead() || c.p.left {
		return
	}
	c.ask(c.p.queues[0], c.next)
}

// ask acquires one of each, and then does what is next.
func (c *steadyCaller) ask(q simulatedQueue, next func()) {
	r := c.r
	ns := make([]int64, len(q.limits))
	for i := range ns {
		ns[i] = 1
	}
	a := &replayedAsk{r: r, l: r.lineOf(c.p, q), ns: ns}
	a.ends = func(taken bool) {
		if taken {
			r.uses = append(r.uses, permitUse{process: c.p, limits: q.limits, ns: ns, at: time.Now(), handed: a.handed, late: a.late})
		}
		rest := time.Duration(0)
		if c.rests && r.random.IntN(30) == 0 {
			rest = time.Duration(r.random.Int64N(int64(ms(40))))
		}
		r.after(rest, next)
	}
	a.acquires(0)
}
