package asynqlimit

import (
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// rules are what a configuration says about jobs, with the counters of this process.
type rules struct {
	plan      *plan.Jobs
	jobs      map[*plan.Job]*rule
	all       []*rule // the pattern that wins comes first
	limits    map[*plan.Limit]*limit
	named     map[string]*limit
	share     bool // tenants share one of the limits
	perClient bool // each process has permits of its own of one of the limits
	slots     map[*plan.SlotLimit]*slotLimit
	orders    bool // tasks of one of the slot limits keep their order
}

// rule is what applies to the tasks of a pattern.
type rule struct {
	*plan.Job
	never    bool          // it never parks: hold is forever
	inFlight chan struct{} // nil: no cap
	counts   jobCounts
}

// limit is a limit of the configuration.
type limit struct {
	*plan.Limit
	counts limitCounts
	tally  tally
	atOnce atomic.Bool // it gave permits at once when it was last asked, or was not asked yet
}

// newRules returns what a valid configuration says.
func newRules(cfg *config.Config) (*rules, error) {
	jobs, err := plan.New(cfg)
	if err != nil {
		return nil, err
	}
	rs := &rules{
		plan: jobs, jobs: map[*plan.Job]*rule{}, limits: map[*plan.Limit]*limit{}, named: map[string]*limit{}, slots: map[*plan.SlotLimit]*slotLimit{},
	}
	for _, j := range jobs.All() {
		r := &rule{Job: j, never: cfg.Jobs[j.Name].Hold == "forever"}
		if j.MaxInFlight > 0 {
			r.inFlight = make(chan struct{}, j.MaxInFlight)
		}
		rs.jobs[j], rs.all = r, append(rs.all, r)
		rs.orders = rs.orders || slices.ContainsFunc(j.Slots, keepsOrder)
	}
	for _, l := range jobs.Limits() {
		rs.limits[l] = &limit{Limit: l}
		rs.limits[l].atOnce.Store(true)
		rs.named[l.Name] = rs.limits[l]
		rs.share = rs.share || l.Share != ""
		rs.perClient = rs.perClient || l.Rate.Type == throttle.PerClient
	}
	for _, l := range jobs.Slots() {
		rs.slots[l] = &slotLimit{SlotLimit: l}
		rs.slots[l].atOnce.Store(true)
	}
	return rs, nil
}

// forType returns what applies to a task type, or nil.
func (rs *rules) forType(taskType string) *rule { return rs.jobs[rs.plan.For(taskType)] }

// needs is what a task has to acquire.
type needs struct {
	rule     *rule // nil if no pattern of the configuration matches
	draws    []plan.Draw
	limiters []string
	lines    []string // in which the task waits for each of them: see package line
	costs    []int64
	slots    []plan.Slot // it holds one of each while it runs
	dry      []plan.Draw // on limits that only report who would wait
	drySlots []plan.Slot // the same, of limits in flight
}

// of finds out what a task has to acquire. An error is a *BlockedError.
func (rs *rules) of(task plan.Task) (needs, error) {
	p, err := rs.plan.Plan(task)
	n := needs{rule: rs.jobs[p.Job], dry: p.Dry, drySlots: p.DrySlots}
	if mistake, ok := errors.AsType[*plan.Mistake](err); ok {
		return n, &BlockedError{Reason: BlockReason(mistake.Reason), Err: mistake, Fix: mistake.Fix()}
	}
	if err != nil {
		return n, err
	}
	n.draws, n.slots = p.Draws, p.Slots
	for _, d := range p.Draws {
		n.limiters, n.costs = append(n.limiters, d.Limiter), append(n.costs, d.Cost)
		if n.lines = append(n.lines, d.Limiter); d.Tenant != "" {
			n.lines[len(n.lines)-1] = line.OfTenant(d.Limiter, d.Tenant)
		}
	}
	return n, nil
}

// lineOf is the line in which the task waits for one of its limiters.
func (n needs) lineOf(limiter string) string {
	if i := slices.Index(n.limiters, limiter); i >= 0 {
		return n.lines[i]
	}
	return limiter
}

// shared reports whether tenants share one of the task's limiters.
func (n needs) shared() bool {
	return slices.ContainsFunc(n.draws, func(d plan.Draw) bool { return d.Tenant != "" })
}

// costOf is what the task costs of a limiter.
func (n needs) costOf(limiter string) int64 {
	if i := slices.Index(n.limiters, limiter); i >= 0 {
		return n.costs[i]
	}
	return 1
}

// rateOf is the rate of a limiter in the configuration.
func (n needs) rateOf(limiter string) throttle.Rate {
	if i := slices.Index(n.limiters, limiter); i >= 0 {
		return n.draws[i].Rate
	}
	return throttle.Rate{}
}

// mostCost is the highest cost of the task at one of its limits.
func (n needs) mostCost() int64 {
	if len(n.costs) == 0 {
		return 1
	}
	return slices.Max(n.costs)
}

// maxPause is the longest pause that an answer of the API may cause, and the longest time that a refused job stays away. Jobs
// that no pattern matches have the default.
func (n needs) maxPause() time.Duration {
	if n.rule == nil {
		return config.Job{}.LongestPause()
	}
	return n.rule.MaxPause
}

// maxWait is how long an API may tell the job to try later.
func (n needs) maxWait() time.Duration {
	if n.rule == nil {
		return config.Job{}.LongestWait()
	}
	return n.rule.MaxWait
}

// paused returns the draws whose limiters pause when the API says to try later.
func (n needs) paused() (of []int) {
	for i, d := range n.draws {
		if d.Pauses {
			of = append(of, i)
		}
	}
	return of
}

// recent remembers names: the last most at least, and twice as many at most. It keeps only a hash of each.
type recent struct {
	most int
	seed maphash.Seed

	mu          sync.Mutex
	now, before map[uint64]struct{} // what was added, or asked for, since now was last full, and what was before
}

// maxRecent names need about 20 MB, as twice as many may be remembered.
const maxRecent = 500_000

func newRecent(most int) *recent {
	return &recent{most: most, seed: maphash.MakeSeed(), now: map[uint64]struct{}{}}
}

// has reports whether it remembers the name.
func (r *recent) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	hash := maphash.String(r.seed, name)
	if _, ok := r.now[hash]; ok {
		return true
	}
	_, ok := r.before[hash]
	if ok {
		r.keep(hash)
	}
	return ok
}

// add remembers a name.
func (r *recent) add(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep(maphash.String(r.seed, name))
}

func (r *recent) keep(hash uint64) {
	if len(r.now) >= r.most {
		r.before, r.now = r.now, map[uint64]struct{}{}
	}
	r.now[hash] = struct{}{}
}
