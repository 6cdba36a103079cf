package main

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/hiddenapi"
)

// contender is a rule by name.
type contender struct {
	Name string
	With func(*world) (rule, error)
}

func peers() []contender {
	return []contender{{"AWS", newAWS}, {"Loki", newLoki}, {"RudderStack", newRudder}}
}

// named is a scenario with a name. The seed sets its number of processes.
type named struct {
	Name string
	scenario
}

var kinds = []hiddenapi.Kind{hiddenapi.Sliding, hiddenapi.Fixed, hiddenapi.Bucket}

// steady are the scenarios with APIs that do not change.
func steady() (all []named) {
	for _, kind := range kinds {
		for _, c := range []int64{10, 100, 1000} {
			windows := 120
			if c == 1000 {
				windows = 90 // each of these windows has enough requests to count
			}
			all = append(all, named{fmt.Sprintf("%s, %d/s", kind, c), scenario{Kind: kind, Cap: c, Windows: windows}})
		}
	}
	return all
}

// each makes a scenario for each kind of API, at 40/s.
func each(s scenario) (all []named) {
	for _, kind := range kinds {
		s.Kind, s.Cap = kind, 40
		all = append(all, named{string(kind), s})
	}
	return all
}

const changed = 40 // the window in which APIs change

func halved() []named  { return each(scenario{Windows: 60, Change: changed, To: 20}) }
func doubled() []named { return each(scenario{Windows: 90, Change: changed, To: 80}) }
func shared() []named {
	return each(scenario{Windows: 100, Change: changed, Other: 20 * time.Second})
}
func failing() []named {
	return each(scenario{Windows: 52, Change: changed, Fails: 10 * time.Second})
}
func late() []named      { return each(scenario{Windows: 110, Late: true, Workers: 50}) }
func scattered() []named { return each(scenario{Windows: 100, Scattered: true}) }

// workers is the number of processes for a seed: 3 to 50.
func workers(seed uint64) int {
	of := []int{10, 3, 50, 5, 20, 8, 30, 4, 15, 12}
	return of[(seed-1)%uint64(len(of))]
}

// results are the figures of each seed, by the name of the scenario.
type results map[string][]figures

// runAll runs scenarios with a rule, with the seeds 1 to seeds. Some run at the same time,
// which does not change their results.
func runAll(all []named, c contender, seeds int) (results, error) {
	r := results{}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed error
		slots  = make(chan struct{}, runtime.GOMAXPROCS(0))
	)
	for _, n := range all {
		counted := make([]figures, seeds)
		r[n.Name] = counted
		for i := range seeds {
			wg.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				s := n.scenario
				if s.Workers == 0 {
					s.Workers = workers(uint64(i + 1))
				}
				w, err := run(s, uint64(i+1), c.With)
				if err != nil {
					mu.Lock()
					defer mu.Unlock()
					failed = err
					return
				}
				counted[i] = w.count()
			})
		}
	}
	wg.Wait()
	return r, failed
}

// target is a row of the table of targets.
type target struct {
	What, Want string
	of         func(figures) float64
	largest    bool // the worst value is the largest
	reached    func(float64) bool
	format     string
}

// lateShare is what was refused after window 60, as a part of what may be refused: 0.2 %, or
// one in 20 windows if that is more.
func lateShare(f figures) float64 { return min(f.Late/0.002, f.LatePer20) }

// found is the window in which the limit was nearBelow, or infinity if it never was.
func found(n int) float64 {
	if n < 0 {
		return math.Inf(1)
	}
	return float64(n)
}

func steadyTargets() []target {
	return []target{
		{"windows until within max(5 %, 1) below the limit", "at most 20", func(f figures) float64 { return found(f.Near) }, true, atMost(20), "%.0f"},
		{"refused in the first 60 windows", "at most 1 %", func(f figures) float64 { return 100 * f.Early }, true, atMost(1), "%.2f %%"},
		{"refused after them, of max(0.2 %, one in 20 windows)", "at most 1x", lateShare, true, atMost(1), "%.2fx"},
		{"used of the limit, from window 20 on", "at least 95 %", func(f figures) float64 { return 100 * f.Used }, false, atLeast(95), "%.1f %%"},
	}
}

func halvedTargets() []target {
	return []target{
		{"limit halved: cuts until no higher", "one", func(f figures) float64 { return float64(f.Under) }, true, atMost(1), "%.0f"},
	}
}

func doubledTargets() []target {
	return []target{{"limit doubled: windows until 90 % of it is used", "at most 40", func(f figures) float64 { return found(f.Back) }, true, atMost(40), "%.0f"}}
}

func sharedTargets() []target {
	return []target{
		{"another client takes half for 20 s: cuts", "at most 3", func(f figures) float64 { return float64(f.Cuts) }, true, atMost(3), "%.0f"},
		{"windows until 90 % is used again, after it left", "at most 30", func(f figures) float64 { return found(f.Back) }, true, atMost(30), "%.0f"},
	}
}

func failingTargets() []target {
	return []target{{"500s for 10 s: how far the limit moves", "0", func(f figures) float64 { return f.Moved }, true, atMost(0), "%.0f"}}
}

func lateTargets() []target {
	return []target{{"50 processes, replies late by up to 2 s: farthest from the limit after window 60", "at most 15 %", func(f figures) float64 { return 100 * f.Oscillates }, true, atMost(15), "%.1f %%"}}
}

func atMost(n float64) func(float64) bool  { return func(x float64) bool { return x <= n } }
func atLeast(n float64) func(float64) bool { return func(x float64) bool { return x >= n } }
