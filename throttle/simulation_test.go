package throttle

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle/internal/oracle"
)

const (
	// simulatedFleets is how many fleets an ordinary test run has time for.
	simulatedFleets = 60
	// eventsShown is how many of the last events a failure shows.
	eventsShown = 40
)

// TestSimulation lets fleets of Clients work under fake time on a Redis in memory, over a network that
// loses, delays and repeats. The oracle judges each script call by the logs before and after it, and at
// the end the times at which callers got permits.
//
// A seed fixes the limits, the workload and the faults. It does not fix the order of goroutines that
// run at the same fake time, nor what the engine itself draws at random. So a seed that failed fails
// again in most runs, not in each:
//
//	JOBTHROTTLE_SEED=17 go test ./throttle -count 1 -run TestSimulation
//	JOBTHROTTLE_FLEETS=5000 go test ./throttle -count 1 -timeout 2h -run TestSimulation
func TestSimulation(t *testing.T) {
	t.Parallel()
	var total counted
	fleets := eachFleet(t, quarter(simulatedFleets), 50*simulatedFleets, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			s := newSimulation(t, seed)
			s.replays = "TestSimulation"
			s.run()
			total.add(s.count)
		})
	})
	t.Cleanup(func() { // when all have run
		t.Logf("%d fleets: %v", fleets, total.counts)
		if total.counts["fleets"] >= quarter(simulatedFleets) && total.counts["shared and granted"] == 0 {
			t.Error("no call that several requests shared was judged")
		}
	})
}

// eachFleet runs so many fleets, one on each core, each as a test of its own, and returns how
// many there were. At night the fleets are different each time. The environment may ask for
// another number of them, or for a seed.
func eachFleet(t *testing.T, fleets, atNight int, run func(t *testing.T, seed uint64)) int {
	first := uint64(1)
	if nightly() {
		first, fleets = uint64(time.Now().Unix()), atNight
		if withRace {
			fleets /= 10 // .ci/nightly runs all of them without the race detector
		}
	}
	if seed, err := strconv.ParseUint(os.Getenv("JOBTHROTTLE_SEED"), 10, 64); err == nil {
		first, fleets = seed, 1
	}
	if n, err := strconv.Atoi(os.Getenv("JOBTHROTTLE_FLEETS")); err == nil {
		fleets = n
	}
	for seed := first; seed < first+uint64(fleets); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			run(t, seed)
		})
	}
	return fleets
}

// counted is how often things happened in fleets that run at the same time.
type counted struct {
	mu     sync.Mutex
	counts map[string]int
}

func (c *counted) add(more map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[string]int)
	}
	add(c.counts, more)
}

// add counts what one fleet did.
func add(total, more map[string]int) {
	for what, n := range more {
		total[what] += n
	}
}

// simulation is one fleet, its Redis and what is known of both.
type simulation struct {
	*testing.T
	seed    uint64
	replays string     // by which test
	random  *rand.Rand // used to set up the fleet
	redis   *miniredis.Miniredis
	rdb     *redis.Client
	begin   time.Time
	length  time.Duration
	limits  []*simulatedLimit
	procs   []*simulatedProcess
	crowd   bool          // of limits and callers, whose calls are shared
	ample   bool          // there is mostly enough for all
	steps   bool          // Redis's clock is set back in this fleet, and the logs are not judged
	over    chan struct{} // closed when the workload ends

	mu     sync.Mutex            // one script at a time; guards what follows
	off    time.Duration         // of Redis's clock
	back   time.Duration         // by how much it is set back, in this fleet
	backAt time.Time             // when it was
	served map[string]string     // the first reply to a batch that changed something
	left   map[string]oracle.Log // each log as the latest script left it
	count  map[string]int
	events []string
	failed bool

	usesMu sync.Mutex
	uses   []permitUse
}

func newSimulation(t *testing.T, seed uint64) *simulation {
	s := emptySimulation(t, seed)
	s.build()
	return s
}

// emptySimulation has no limits and no processes yet.
func emptySimulation(t *testing.T, seed uint64) *simulation {
	m, rdb := redistest.InMemory(t)
	s := &simulation{
		T: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), redis: m, rdb: rdb, over: make(chan struct{}),
		served: make(map[string]string), left: make(map[string]oracle.Log), count: make(map[string]int),
	}
	for _, script := range simulatedScripts {
		check(t, script.Load(t.Context(), rdb).Err())
	}
	time.Sleep(time.Duration(s.random.Int64N(int64(48 * time.Hour)))) // calendar windows begin anywhere
	s.begin = time.Now()
	return s
}

// now is what Redis's clock shows, in us.
func (s *simulation) now() int64 { return time.Now().Add(s.off).UnixMicro() }

// note adds to the events that a failure shows.
func (s *simulation) note(format string, args ...any) {
	if len(s.events) == eventsShown {
		s.events = s.events[1:]
	}
	s.events = append(s.events, fmt.Sprintf("%12v  ", time.Since(s.begin).Round(time.Microsecond))+fmt.Sprintf(format, args...))
}

// broken fails the test: a promise was broken. The first is shown in full.
func (s *simulation) broken(promise, format string, args ...any) {
	s.count["broken: "+promise]++
	if s.failed {
		return
	}
	s.failed = true
	s.Errorf("%s: %s\nreplay: JOBTHROTTLE_SEED=%d go test ./throttle -count 1 -run %s\nlimits:\n%slast events:\n%s",
		promise, fmt.Sprintf(format, args...), s.seed, s.replays, s.describe(), strings.Join(s.events, "\n"))
}

func (s *simulation) describe() string {
	var b strings.Builder
	for _, l := range s.limits {
		fmt.Fprintf(&b, "  %s: %v guard %v smooth %v %v, %v, kept %v; %d entries at first\n", l.name, l.rate, l.rate.guard(), l.rate.Smooth, l.rate.Window, l.rate.Type, l.rate.KeepAlive, l.filled)
	}
	for _, p := range s.procs {
		fmt.Fprintf(&b, "  %s: %v away, faults 1 in %d, hears of changes: %v\n", p.name, p.way, p.faults, p.hears)
	}
	return b.String()
}

// run lets the fleet work, ends it, and judges what became of it.
func (s *simulation) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, p := range s.procs {
		for i := range p.callers {
			random := rand.New(rand.NewPCG(s.seed, uint64(1000*p.no+i+1)))
			wg.Go(func() { s.caller(ctx, p, random) })
		}
	}
	wg.Go(func() { s.operator(ctx, rand.New(rand.NewPCG(s.seed, 1<<40))) })
	wg.Go(func() { s.disturb(ctx, rand.New(rand.NewPCG(s.seed, 1<<41))) })
	for end := s.begin.Add(s.length); time.Now().Before(end) && s.calls() < s.mostCalls(); {
		time.Sleep(s.length / 100)
	}
	close(s.over)
	cancel()
	wg.Wait()
	s.judgeIdle()
	for _, p := range s.procs {
		wg.Go(func() { _ = p.client.Close() }) // a Client that lost its Redis says so
	}
	wg.Wait()
	s.judgeUses()
	s.judgePauses()
	s.judgeLeaks()
	s.judgeGrants()
	s.count["fleets"]++
}

func (s *simulation) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count["calls"]
}
