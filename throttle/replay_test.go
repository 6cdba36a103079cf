package throttle

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

const (
	// replayedFleets is how many fleets an ordinary test run has time for, fleetsAtNight how many a night has, and
	// stalledFleets how many of those that stall.
	replayedFleets, fleetsAtNight, stalledFleets = 40, 10_000, 100
	// leastCalls is how many calls each fleet makes at least while it works.
	leastCalls = 100
)

// TestReplay lets fleets work as TestSimulation does, without goroutines: their lines are stepped one
// event after the other. So a seed fixes everything that happens, and a seed that fails fails again in
// the same way:
//
//	JOBTHROTTLE_SEED=17 go test ./throttle -count 1 -run TestReplay
//	JOBTHROTTLE_FLEETS=2000 go test ./throttle -count 1 -timeout 1h -run TestReplay
func TestReplay(t *testing.T) {
	t.Parallel()
	var total, events counted
	fleets := eachFleet(t, quarter(replayedFleets), fleetsAtNight, func(t *testing.T, seed uint64) {
		stalls := 0
		if seed%5 == 0 {
			stalls = 4
		}
		r := replay(t, seed, stalls)
		total.add(r.count)
		events.add(r.events)
	})
	t.Cleanup(func() { // when all have run
		t.Logf("%d fleets: %v", fleets, total.counts)
		for _, pair := range slices.Sorted(maps.Keys(events.counts)) {
			t.Logf("%8d  %s", events.counts[pair], pair)
		}
		if fleets >= manyFleets && !t.Failed() {
			judgePairs(t, events.counts)
		}
		if n := total.counts["calls"]; fleets >= fleetsAtNight && n < callsAtNight {
			t.Errorf("%d calls, want at least %d", n, callsAtNight)
		}
	})
}

// TestReplayIsExact: the same seed makes the same calls at the same times, to the byte.
func TestReplayIsExact(t *testing.T) {
	t.Parallel()
	for seed := range uint64(5) {
		var sums [2]uint64
		for i := range sums {
			t.Run(fmt.Sprintf("seed=%d/%d", seed+1, i), func(t *testing.T) { sums[i] = replay(t, seed+1, 0).sum() })
		}
		if sums[0] != sums[1] {
			t.Errorf("seed %d: two runs differ", seed+1)
		}
	}
}

// TestReplayStalls: the same, while callers stand still now and then just when they were handed their permits, as on a machine
// that is too busy.
func TestReplayStalls(t *testing.T) {
	t.Parallel()
	var events counted
	eachFleet(t, quarter(stalledFleets), 50*stalledFleets, func(t *testing.T, seed uint64) { events.add(replay(t, seed, 32).events) })
	t.Cleanup(func() {
		missed := 0
		for pair, n := range events.counts {
			if strings.HasSuffix(pair, " x "+line.Missed.String()) {
				missed += n
			}
		}
		if t.Logf("%d permits were missed", missed); missed == 0 && !t.Failed() && os.Getenv("JOBTHROTTLE_SEED") == "" {
			t.Error("no permits were missed: the test shows nothing")
		}
	})
}

// replay runs the fleet of a seed. Callers stand still one time in so many: stalls; zero: never.
func replay(t *testing.T, seed uint64, stalls int) (r *replayed) {
	synctest.Test(t, func(t *testing.T) {
		r = &replayed{simulation: emptySimulation(t, seed), hash: fnv.New64a(), events: make(map[string]int), stalls: stalls}
		r.ample = seed%4 == 1
		r.build()
		r.replays = "TestReplay"
		if stalls == 32 {
			r.replays += "Stalls"
		}
		r.run()
	})
	return r
}

// replayed is a simulation whose lines are stepped by an agenda.
type replayed struct {
	*simulation
	agenda  agenda
	no      int // number of the entries so far
	ended   bool
	late    time.Duration // how late timers of callers fire at most
	stalls  int           // callers stand still one time in so many, just when they have their permits; zero: never
	away    time.Time     // until then Redis answers nobody,
	refuses bool          // and they soon know
	lines   []*replayedLine
	hash    interface {
		io.Writer
		Sum64() uint64
	}
	forgotten []*replayedAsk // whose callers do not come for what they have reserved
	events    map[string]int // how often each kind of event came in each phase of a line
}

func (r *replayed) sum() uint64 { return r.hash.Sum64() }

// agendum is something to do at some time.
type agendum struct {
	at time.Time
	no int
	do func()
}

// agenda has the earliest first; of one time, what was put there first.
type agenda []agendum

func (a agenda) Len() int { return len(a) }
func (a agenda) Less(i, j int) bool {
	return a[i].at.Before(a[j].at) || a[i].at.Equal(a[j].at) && a[i].no < a[j].no
}
func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }
func (a *agenda) Push(x any)   { *a = append(*a, x.(agendum)) }
func (a *agenda) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	*a = (*a)[:last]
	return x
}

func (r *replayed) after(d time.Duration, do func()) {
	r.no++
	heap.Push(&r.agenda, agendum{time.Now().Add(max(d, 0)), r.no, do})
}

// until does what has to be done until then.
func (r *replayed) until(end time.Time, more func() bool) {
	for len(r.agenda) > 0 && !r.agenda[0].at.After(end) && more() {
		next := heap.Pop(&r.agenda).(agendum)
		time.Sleep(time.Until(next.at))
		next.do()
	}
	if more() {
		time.Sleep(time.Until(end))
	}
}

func always() bool { return true }

func (r *replayed) run() {
	for _, p := range r.procs {
		p.heeds = r.random.IntN(2) == 0
		for range p.callers {
			c := &replayedCaller{r: r, p: p, lazy: []time.Duration{0, ms(1), ms(20), ms(300), 2 * time.Second}[r.random.IntN(5)]}
			if r.ample {
				c.lazy = ms(20)
			}
			r.after(0, c.next)
		}
		if r.loops(p) {
			r.after(0, (&steadyCaller{r: r, p: p, rests: r.seed%2 == 0}).next)
		}
	}
	every := []time.Duration{ms(300), 3 * time.Second, time.Hour}[r.random.IntN(3)]
	if r.ample {
		every = ms(200)
	}
	r.operate(every)
	r.disturb()
	more := func() bool { return r.count["calls"] < r.mostCalls() }
	for end := r.begin; r.count["calls"] < leastCalls && end.Before(r.begin.Add(24*time.Hour)); {
		end = end.Add(r.length)
		r.until(end, more)
	}
	if n := r.count["calls"]; n < leastCalls {
		r.Errorf("%d calls in %v, want at least %d: the fleet shows too little", n, time.Since(r.begin), leastCalls)
	}
	r.end()
}

// end ends all waits, and judges what became of the fleet.
func (r *replayed) end() {
	r.ended = true
	close(r.over)
	var last []*replayedLine // those that close when they have nothing left; the others give back what they have
	for i, l := range r.lines {
		if l.p.left {
			continue
		}
		idle := len(l.order) == 0 // what callers do not come for any more counts as used
		l.leaveAll()
		if l.l.Phase() != "has a stock" && (!idle || (r.seed+uint64(i))%3 != 0) {
			last = append(last, l)
			continue
		}
		l.step(line.Event{Kind: line.Close})
	}
	r.leaveForgotten()
	r.until(time.Now().Add(10*time.Second), always) // what was lost has been asked again
	before := r.count["calls"]
	r.until(time.Now().Add(10*time.Second), always)
	if n := r.count["calls"] - before; n > 0 {
		r.broken("nobody asks for nothing", "%d calls in 10 s, though all waits have ended", n)
	}
	for _, l := range last {
		l.step(line.Event{Kind: line.Close})
	}
	r.until(time.Now().Add(time.Minute), always)
	r.judgeUses()
	r.judgePauses()
	r.judgeLeaks()
	r.judgeGrants()
	r.count["fleets"]++
	for _, p := range r.procs {
		check(r, p.client.Close())
	}
}

// send takes a message there and back, or loses it.
func (p *simulatedProcess) send(r *replayed, m message, answered func(any, error)) {
	fate, again := p.draw(r.ended)
	there, back := p.trip()
	lost := p.patience()
	if time.Now().Before(r.away) && !r.ended {
		fate = requestLost
		if r.refuses {
			lost /= 20
		}
	}
	if (fate == requestLost || fate == replyLost) && r.random.IntN(16) == 0 { // somebody restarts it
		r.after(time.Duration(r.random.Int64N(int64(lost))), func() { r.leaves(p) })
	}
	begin := time.Now()
	arrives := func(d time.Duration, do func()) {
		r.after(max(d, time.Until(p.held)), do)
	}
	arrives(there, func() {
		reply := func(d time.Duration, value any, err error) {
			arrives(d, func() {
				p.slowest = max(p.slowest, time.Since(begin))
				answered(value, err)
			})
		}
		switch {
		case p.dead():
			return
		case fate == requestLost:
			reply(lost, nil, io.ErrUnexpectedEOF)
			return
		case fate == refused:
			reply(back, nil, redisError("LOADING Redis is loading the dataset in memory"))
			return
		}
		if m.changes() && p.faults > 0 && r.random.IntN(2) == 0 { // they are few
			again = time.Duration(r.random.Int64N(int64(repeatedFor)))
		}
		value, err := r.execute(p, m, false)
		fmt.Fprintln(r.hash, time.Now().UnixMicro(), p.name, m, value, err)
		r.announced(p, m)
		if again >= 0 && !r.ended {
			r.after(again, func() {
				if !r.ended {
					_, _ = r.execute(p, m, true)
				}
			})
		}
		switch fate {
		case replyLost:
			reply(lost, nil, io.ErrUnexpectedEOF)
		case slowReply:
			reply(lost/4+back, value, err)
		default:
			reply(back, value, err)
		}
	})
}

// announced passes on that a call released permits, or gave back what others may hear of.
func (r *replayed) announced(p *simulatedProcess, m message) {
	if m.script != "acquire" {
		return
	}
	call := readBatchCall(m.args)
	for i, n := range call.releases {
		if n > 0 {
			r.changed(p, m.names()[i], line.Freed)
		}
	}
	for _, g := range call.returns {
		for i, name := range m.names() {
			if g.kind == script.Came || g.announce&(1<<i) != 0 {
				r.changed(p, name, line.Freed)
			}
		}
	}
}

// lineOf is the line of a process for a queue.
func (r *replayed) lineOf(p *simulatedProcess, q simulatedQueue) *replayedLine {
	var names []string
	for _, l := range q.limits {
		names = append(names, l.name)
	}
	for _, l := range r.lines {
		if l.p == p && slices.Equal(l.names, names) {
			return l
		}
	}
	l := &replayedLine{r: r, p: p, names: names, asks: make(map[*line.Waiter]*replayedAsk), told: make([]int64, len(names))}
	l.no = len(r.lines)
	c := line.Config{
		Client: p.name, Reply: l.reply(),
		Random: rand.New(rand.NewPCG(r.seed, uint64(1<<33+len(r.lines)))), Way: p.known, Clock: &p.clock,
	}
	for _, sl := range q.limits {
		c.Members = append(c.Members, script.KeysOf(sl.name, p.name))
	}
	l.l = line.New(c)
	for i, sl := range q.limits {
		l.l.Around.Create[i] = strings.Join(sl.rate.fields(), ":")
	}
	r.lines = append(r.lines, l)
	if p.left {
		l.step(line.Event{Kind: line.Close})
	}
	return l
}
