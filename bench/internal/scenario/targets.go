package scenario

import (
	"fmt"

	"github.com/jobthrottle/jobthrottle/bench/internal/drain"
	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
	"github.com/jobthrottle/jobthrottle/bench/internal/peer"
)

// Targets are the targets of this project.
func Targets() []figures.Target {
	ours := func(scenario, what string, m figures.Metric, to string, bound float64) figures.Target {
		return figures.Target{What: what, Scenario: scenario, Metric: m, Peer: peer.NameJobthrottle, To: to, Bound: bound}
	}
	atLeast := func(t figures.Target) figures.Target {
		t.AtLeast = true
		return t
	}
	perSecond := NeverBinding(256)
	unbound := ours(NeverBinding(1), "never binding, 1 goroutine: p50 of Acquire without prefetch, to an empty EVALSHA", figures.TookP50, peer.NameScript, 1.6)
	unbound.Peer = peer.NameNoPrefetch
	drained := ours(Drain, "drain of asynq tasks at 40/s, waiting in its worker, to the ideal", figures.OfIdeal, "", 1.03)
	drained.Peer = drain.NameWaiting
	parked := ours(Drain, "the same, parking", figures.OfIdeal, "", 1.03)
	parked.Peer = drain.NameParking
	targets := []figures.Target{
		ours(Contended1000, "script calls per permit, contended at 1000/s, to Redisson", figures.CallsPerPermit, peer.NameRedisson, 1./25),
		ours(Contended1000, "the same, to redis_rate", figures.CallsPerPermit, peer.NameRedisRate, 1./350),
		ours(Contended1000, "Redis CPU per permit, contended at 1000/s, to Redisson", figures.CPUPerPermit, peer.NameRedisson, 1./8),
		ours(Contended1000, "the same, to redis_rate", figures.CPUPerPermit, peer.NameRedisRate, 1./50),
		atLeast(ours(perSecond, "never binding, 256 goroutines: permits/s, to redis_rate", figures.PermitsPerSecond, peer.NameRedisRate, 8)),
		atLeast(ours(perSecond, "the same, to Redisson", figures.PermitsPerSecond, peer.NameRedisson, 8)),
		unbound,
		ours(Contended1000, "busiest window at the callers, 8 x 64 at 1000/s", figures.Busiest, "", 1000),
		ours(Contended50, "busiest window at the callers, 8 x 64 at 50/s", figures.Busiest, "", 50),
		ours(ManyProcesses, "busiest window at the callers, 64 x 1 at 1000/s", figures.Busiest, "", 1000),
		ours(ManyProcesses, "Redis CPU per permit, 64 x 1 at 1000/s, to Redisson", figures.CPUPerPermit, peer.NameRedisson, 1),
		ours(Big, "busiest window at the callers, one big among small at 1000/s", figures.Busiest, "", 1000),
		ours(Memory, "memory at 100,000/min, to Redisson", figures.Bytes, peer.NameRedisson, 1./50),
		drained,
		parked,
	}
	for _, n := range limiterCounts {
		targets = append(targets,
			atLeast(ours(ManyLimiters(n), fmt.Sprintf("%d limiters: permits/s, to redis_rate", n), figures.PermitsPerSecond, peer.NameRedisRate, 2)),
			ours(ManyLimiters(n), "the same, Redis CPU per permit", figures.CPUPerPermit, peer.NameRedisRate, 0.6),
		)
	}
	return targets
}
