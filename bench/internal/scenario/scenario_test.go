package scenario

import (
	"math"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/bench/internal/drain"
	"github.com/jobthrottle/jobthrottle/bench/internal/peer"
	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEveryRun measures everything except Redisson, briefly: each run has all the figures of
// its scenario's table.
func TestEveryRun(t *testing.T) {
	redistest.Require(t)
	server, err := redisserver.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	}()
	b := Bench{Server: server, Size: Size{
		Contended: 2 * time.Second, NeverBinding: 500 * time.Millisecond, Many: 500 * time.Millisecond, Limiters: 2_000, Big: 2 * time.Second,
		Log: 200, LogInterval: 2 * time.Second, Tasks: 80, Patience: time.Minute, Idle: time.Second,
	}}
	for _, s := range b.All() {
		for _, run := range s.Runs {
			t.Run(s.Name+"/"+run.Peer, func(t *testing.T) {
				r, err := run.Measure(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				for _, m := range s.Columns {
					x, ok := r.Figures[m]
					if alone := run.Peer == drain.NameAlone; !ok && !alone || math.IsNaN(x) || math.IsInf(x, 0) {
						t.Errorf("%s is %v, %v", m, x, ok)
					}
				}
			})
		}
	}
}

// TestTargets: each target is about figures that are measured.
func TestTargets(t *testing.T) {
	scenarios := map[string]Scenario{}
	for _, s := range (Bench{Redisson: &peer.Redisson{}, Size: Full()}).All() {
		if _, twice := scenarios[s.Name]; twice {
			t.Errorf("two scenarios are named %s", s.Name)
		}
		scenarios[s.Name] = s
		if !s.has(s.Base) {
			t.Errorf("%s compares with %q, which it does not measure", s.Name, s.Base)
		}
	}
	for _, target := range Targets() {
		s, ok := scenarios[target.Scenario]
		if !ok {
			t.Errorf("%s: there is no scenario %q", target.What, target.Scenario)
			continue
		}
		if !s.has(target.Peer) || target.To != "" && !s.has(target.To) {
			t.Errorf("%s: %s has not both %q and %q", target.What, s.Name, target.Peer, target.To)
		}
		if !slices.Contains(s.Columns, target.Metric) {
			t.Errorf("%s: %s has no %q", target.What, s.Name, target.Metric)
		}
	}
}

func (s Scenario) has(peer string) bool {
	return slices.ContainsFunc(s.Runs, func(r Run) bool { return r.Peer == peer })
}

// TestLength: all of it takes no longer than it says on the command line.
func TestLength(t *testing.T) {
	for _, tt := range []struct {
		size   Size
		rounds int
		most   time.Duration
	}{{Full(), 5, 22 * time.Minute}, {Quick(), 1, 90 * time.Second}} {
		var sum time.Duration
		for _, s := range (Bench{Redisson: &peer.Redisson{}, Size: tt.size}).All() {
			for _, r := range s.Runs {
				sum += time.Duration(tt.rounds) * r.Length
			}
		}
		t.Logf("%d rounds take %v", tt.rounds, sum)
		if sum > tt.most {
			t.Errorf("%d rounds take %v, want at most %v", tt.rounds, sum, tt.most)
		}
	}
}
