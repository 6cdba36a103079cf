package asynqlimit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/fair"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// Tenants that share a limit wait in lines of their own. Package fair decides which of them is
// next, by tags. The tags belong to the limiter and the queue, in Redis, whatever process a job is in. What
// a tenant gets in one queue also counts in the others, up to a bound (charge.lua).
// Tenants are charged when jobs are called from their lines. If a called job does not get its
// permits, its tenant gets the charge back. If a job gets permits without being called from
// there, its tenant is charged then.

const (
	// minTenants and maxTenants bound how many tenants a visit considers: more than it has
	// permits for, because what it knows of their tags may be old.
	minTenants, maxTenants = 20, 500
	// maxOwed is how many tenants a process remembers to charge at its next pass.
	maxOwed = 10_000
)

// sharing is a visit of a line that tenants share.
type sharing struct {
	k       *visit
	limiter string
	waiting line.Waiting
	tags    line.Tags
	weights []float64 // in the configuration
	v       float64   // after what was dealt
	visits  []line.Visit
	of      []int // the tenant of each visit, among the first
}

// deal finds out from which tenants' lines to call jobs for the permits of the visits.
func (c *caller) deal(ctx context.Context, of []*sharing) error {
	var asked []*sharing
	var waiting []line.TenantsOf
	for _, s := range of {
		if s.k.permits <= 0 && s.k.tasks > 0 { // a line without tasks is removed
			continue
		}
		most := min(max(2*s.k.permits/max(s.k.cost, 1), minTenants), maxTenants)
		asked = append(asked, s)
		waiting = append(waiting, line.TenantsOf{Queue: c.queues[s.k.queue], Limiter: s.limiter, Most: int(most)})
	}
	if len(asked) == 0 {
		return nil
	}
	found, err := c.l.lines.Tenants(ctx, waiting)
	queues, limiters, tenants := make([]string, len(asked)), make([]string, len(asked)), make([][]string, len(asked))
	for i, s := range asked {
		s.waiting, queues[i], limiters[i] = found[i], waiting[i].Queue, s.limiter
		for _, t := range s.waiting.First {
			tenants[i] = append(tenants[i], t.Name)
		}
	}
	tags, terr := c.l.lines.Tags(ctx, queues, limiters, tenants)
	if err = errors.Join(err, terr); terr != nil {
		return err
	}
	for i, s := range asked {
		s.tags = tags[i]
		s.decide(c.l.rules)
	}
	return err
}

// decide decides what to call from the line of each tenant, and corrects what the queue knows of
// the tenants' tags.
func (s *sharing) decide(rules *rules) {
	limit := rules.limitOf(s.limiter)
	first := s.waiting.First
	if len(first) == 0 {
		return
	}
	v := s.tags.V
	if v < 0 { // Redis has lost it, or nobody has begun
		v = first[0].Start
		for i, t := range first {
			s.tags.Finish[i] = t.Start
		}
	}
	most := math.Inf(1)
	if int64(len(first)) < s.waiting.All {
		most = first[len(first)-1].Start // the others are not before that
	}
	tenants := make([]fair.Tenant, len(first))
	s.weights = make([]float64, len(first))
	for i, t := range first {
		if s.weights[i] = 1; limit != nil {
			s.weights[i] = limit.WeightOf(t.Name)
		}
		tenants[i] = fair.Tenant{Finish: s.tags.Finish[i], Weight: cmp.Or(s.tags.Weights[i], s.weights[i]), Cost: t.Cost, Jobs: t.Tasks, Since: t.Since}
	}
	got, after := fair.Deal(v, tenants, s.k.permits, max(s.k.capacity, 1), most)
	s.v = after
	for i, t := range tenants {
		if start := t.Start(v); got[i] > 0 || t.Jobs == 0 || start != first[i].Start {
			s.visits = append(s.visits, line.Visit{Line: line.OfTenant(s.limiter, first[i].Name), Permits: got[i], Start: start, Weight: t.Weight})
			s.of = append(s.of, i)
		}
	}
}

// dealt is for how many permits tasks of its tenants are to be called.
func (s *sharing) dealt() (permits int64) {
	for _, v := range s.visits {
		permits += v.Permits
	}
	return permits
}

// inASecond is about how many permits a limit gives in a second, one at least.
func inASecond(r throttle.Rate) int64 {
	return max(int64(float64(r.Permits)*float64(time.Second)/float64(max(r.Interval, 1))), 1)
}

// costs remembers what tasks of a line that tenants share cost on average: where costs differ,
// the cost of the first task says little.
func (c *caller) costs(name string, b line.Brought) {
	if b.Called == 0 {
		return
	}
	if len(c.average) > maxPaces {
		clear(c.average)
	}
	c.average[name] = max((b.Cost+b.Called/2)/b.Called, 1)
}

// charge returns what was called from the lines of tenants. brought has one entry for each visit. empty says that
// no task is left. If there is nothing to charge, due is false.
func (s *sharing) charge(queue string, limit *limit, brought []line.Brought, empty bool) (charge line.Charge, due bool) {
	charge = line.Charge{Limiter: s.limiter, Queue: queue, V: s.v, Empty: empty}
	for i, b := range brought {
		if of := s.of[i]; b.Cost > 0 {
			ahead := 2 * s.waiting.First[of].Cost
			if limit != nil {
				ahead = max(ahead, inASecond(limit.RateOf(s.limiter)))
			}
			charge.Tenants = append(charge.Tenants, line.Charged{Name: s.waiting.First[of].Name, Permits: b.Cost, Weight: s.weights[of], Ahead: ahead})
		}
	}
	return charge, empty || len(brought) > 0
}

// hasGone reports whether most of the tenants that were to be called had no task, because tasks were gone.
// Perhaps somebody has deleted or archived those of many tenants: until they leave, others wait for them.
func (s *sharing) hasGone(brought []line.Brought) bool {
	gone := 0
	for i, b := range brought {
		if tasks := s.waiting.First[s.of[i]].Tasks; b.Called == 0 && (tasks == 0 || b.Left < tasks) {
			gone++
		}
	}
	return 2*gone > len(brought)
}

// clearLasts is how long at most one pass clears lines of tenants. Redis answers others in between.
const clearLasts = 20 * time.Millisecond

// clearGone clears those lines of tasks that are gone.
func (c *caller) clearGone(ctx context.Context, of []*sharing) error {
	began := time.Now()
	for _, s := range of {
		for more := true; more && time.Since(began) < clearLasts; {
			var err error
			if more, err = c.l.lines.ClearGone(ctx, c.queues[s.k.queue], s.limiter); err != nil {
				return fmt.Errorf("clear the line of jobs that are gone: %w", err)
			}
		}
	}
	return nil
}

// owe notes that a tenant has got permits otherwise than through its line, or that it gives back
// what it was charged for. The next pass charges it.
func (c *caller) owe(queue, limiter, tenant string, permits int64, weight float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := owedKey{queue, limiter, tenant}
	if o, there := c.owed[key]; there || len(c.owed) < maxOwed {
		o.Name, o.Permits, o.Weight = tenant, o.Permits+permits, weight
		c.owed[key] = o
	}
}

type owedKey struct{ queue, limiter, tenant string }

// chargeOwed charges tenants what they owe.
func (c *caller) chargeOwed(ctx context.Context) error {
	c.mu.Lock()
	if len(c.owed) == 0 {
		c.mu.Unlock()
		return nil
	}
	owed := c.owed
	c.owed = map[owedKey]line.Charged{}
	c.mu.Unlock()
	var charges []line.Charge
	at := map[owedKey]int{}
	for key, o := range owed {
		if o.Permits == 0 {
			continue
		}
		key.tenant = ""
		i, there := at[key]
		if !there {
			i = len(charges)
			at[key], charges = i, append(charges, line.Charge{Limiter: key.limiter, Queue: key.queue, V: -1})
		}
		o.Ahead = max(o.Permits, 0)
		charges[i].Tenants = append(charges[i].Tenants, o)
	}
	if len(charges) == 0 {
		return nil
	}
	if err := c.l.lines.Charge(ctx, charges); err != nil {
		return fmt.Errorf("charge tenants: %w", err)
	}
	return nil
}

// served charges the tenants of the task for permits for which it was not called, if others wait
// for them.
func (j *job) served() {
	for i, d := range j.needs.draws {
		if d.Tenant == "" || j.a.called && j.a.wait.Line == j.needs.lines[i] {
			continue
		}
		if j.l.caller.lined(j.a.queue, line.SharedBy(d.Limiter)) {
			j.l.caller.owe(j.a.queue, d.Limiter, d.Tenant, j.needs.costs[i], d.Limit.WeightOf(d.Tenant))
		}
	}
}

// uncalled gives the tenant of a task back what it was charged when the task was called, if the
// task did not get its permits.
func (j *job) uncalled() {
	limiter, tenant, shared := line.Split(j.a.wait.Line)
	if !shared || !j.a.called || j.held {
		return
	}
	weight := 1.0
	if limit := j.l.rules.limitOf(limiter); limit != nil {
		weight = limit.WeightOf(tenant)
	}
	j.l.caller.owe(j.a.queue, limiter, tenant, -max(j.a.wait.Cost, 1), weight)
}

// limitOf returns the limit of the configuration that a limiter belongs to, or nil.
func (rs *rules) limitOf(limiter string) *limit {
	if l := rs.named[limiter]; l != nil && l.Key == "" {
		return l
	}
	for i := range len(limiter) {
		if limiter[i] == ':' {
			if l := rs.named[limiter[:i]]; l != nil && l.Key != "" {
				return l
			}
		}
	}
	return nil
}

// strays reports whether the configuration has changed since the tasks of a line parked: tenants
// share the limiter now, or do not share it any more. The tasks go back to their queue, and find
// their new lines from there.
func (rs *rules) strays(name string) bool {
	limiter, _, shared := line.Split(name)
	if strings.HasPrefix(name, "!") {
		return false
	}
	limit := rs.limitOf(limiter)
	return limit != nil && (limit.Share != "") != shared
}

// release returns the tasks of such lines to their queues.
func (c *caller) release(ctx context.Context, strays []*visit) (err error) {
	for _, k := range strays {
		queue := c.queues[k.queue]
		n, failed := c.l.lines.Release(ctx, queue, k.name)
		if err = errors.Join(err, failed); n > 0 {
			c.l.logger.Info("jobs go back to their queue, since the share of their limit was changed", "queue", queue, "line", k.name, "jobs", n)
		}
		c.note(queue, k.name, 0)
	}
	return err
}
