package jobview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// MaxLimiters is how many limiters of a keyed limit an Overview has at most.
const MaxLimiters = 10

// Overview is the state of the limits and queues of a worker's configuration at one time, over
// the whole fleet.
type Overview struct {
	At     time.Time // when it was read, by this process's clock
	Limits []LimitOverview
	// InFlight are the limits in flight.
	InFlight []InFlightOverview
	Pools    []PoolOverview
	// Blocked are jobs that cannot run until something is fixed, by reason and type, the most
	// first; at most MaxBlocked.
	Blocked []BlockedOverview
	Unread  int64 // lines of parked tasks that were too many to read: their tasks count in Retry
}

// LimitOverview is a limit of the configuration.
type LimitOverview struct {
	Name   string
	Rate   throttle.Rate // as configured: an operator may have changed it since
	Key    string        // empty if there is one limiter for all
	Jobs   []string      // the patterns of jobs that draw on it
	Parked int64         // tasks that are parked for it
	Lines  int64         // limiters for which they wait
	// Oldest is how long the first of those tasks to arrive has waited, by Redis's clock; 0 if
	// none waits. If there are more lines than an Overview reads, each Overview reads some of
	// the others, so the oldest is found after a while.
	Oldest time.Duration
	// Limiters has one element, or none if nobody has created the limiter yet. For a keyed
	// limit, it has those with the longest lines.
	Limiters []LimiterOverview
	// Learnt is what an adaptive limit without a key has learnt; nil for other limits.
	Learnt *operate.Learnt
	Share  string // where a job has its tenant; empty if tenants do not share the limit
	// Tenants are those with jobs in line, for a limit without a key that tenants share. The
	// largest weight comes first; there are at most MaxTenants. AllTenants is how many there
	// are in all.
	Tenants    []TenantShare
	AllTenants int64
	// Broken are limiters that are missing in Limiters because somebody wrote something invalid
	// into Redis.
	Broken []error
}

// LimiterOverview is a limiter in Redis.
type LimiterOverview struct {
	operate.FleetUsage
	Configured throttle.Rate // the rate of its value, where the limit has rates for some values
	Parked     int64
}

// PoolOverview is a pool of the configuration.
type PoolOverview struct {
	Name       string
	Slots      int
	MaxWaiting int
	Queues     []QueueOverview // by weight
}

// QueueOverview is what asynq says about a queue. But asynq counts parked tasks as tasks to
// retry, and here they are counted separately.
type QueueOverview struct {
	Name                                                           string
	Weight                                                         int
	Pending, Active, Scheduled, Retry, Parked, Archived, Completed int64
	Paused                                                         bool
}

// Overview reads the state of the limits and queues of this worker's configuration. It changes
// nothing. It costs a script call for each limit and client, and some calls for each queue:
// call it at most once a second.
func (v *View) Overview(ctx context.Context) (Overview, error) {
	o := Overview{At: time.Now()}
	lines, err := v.readLines(ctx)
	if err != nil {
		return Overview{}, err
	}
	o.Unread = lines.unread
	if o.Limits, err = v.limitsOverview(ctx, lines); err != nil {
		return Overview{}, err
	}
	var waits []line.BlockedPart
	if o.Blocked, waits, err = v.inspector.blocked(ctx, lines.seen); err != nil {
		return Overview{}, err
	}
	for _, w := range waits {
		lines.queues[w.Queue] += w.Tasks
	}
	if o.InFlight, err = v.inFlightOverview(ctx, waits); err != nil {
		return Overview{}, err
	}
	if err = v.addTenants(ctx, o.Limits); err != nil {
		return Overview{}, err
	}
	o.Pools, err = v.poolsOverview(ctx, lines)
	return o, err
}

const (
	// MaxTenants is how many tenants of a limit an Overview has at most.
	MaxTenants = 20
	// maxShared is for how many limits it reads tenants: those with the most jobs in line.
	maxShared = 20
)

// addTenants adds the tenants of the limits that tenants share.
func (v *View) addTenants(ctx context.Context, limits []LimitOverview) error {
	var shared []*LimitOverview
	for i := range limits {
		if l := &limits[i]; l.Share != "" && l.Key == "" && l.Parked > 0 {
			shared = append(shared, l)
		}
	}
	slices.SortStableFunc(shared, func(a, b *LimitOverview) int { return cmp.Compare(b.Parked, a.Parked) })
	for _, l := range shared[:min(len(shared), maxShared)] {
		tenants, all, err := v.inspector.Tenants(ctx, l.Name)
		if err != nil {
			return err
		}
		l.Tenants, l.AllTenants = tenants[:min(len(tenants), MaxTenants)], all
	}
	return nil
}

func (v *View) limitsOverview(ctx context.Context, lines parkedLines) ([]LimitOverview, error) {
	var limits []LimitOverview
	var names []string
	byLimit, jobs := v.byLimit(lines), map[*plan.Limit][]string{}
	for _, j := range v.plans.All() {
		for _, l := range j.Limits {
			jobs[l] = append(jobs[l], j.Name)
		}
	}
	for _, l := range v.plans.Limits() {
		lo := LimitOverview{Name: l.Name, Rate: l.Rate, Key: l.Key, Share: l.Share}
		limiters := []string{l.Name}
		if l.Key != "" {
			limiters = lines.longest(byLimit[l])
		}
		lo.Lines, lo.Parked = int64(len(byLimit[l])), lines.sum(byLimit[l])
		lo.Oldest = lines.oldest[l].age
		for _, name := range limiters {
			lo.Limiters = append(lo.Limiters, LimiterOverview{FleetUsage: operate.FleetUsage{Name: name}, Configured: l.RateOf(name), Parked: lines.tasks[name]})
		}
		names = append(names, limiters...)
		lo.Jobs = slices.Compact(slices.Sorted(slices.Values(jobs[l])))
		limits = append(limits, lo)
	}
	usages, err := v.inspector.fleet.Inspect(ctx, names...)
	broken := map[string]error{}
	if spoilt, ok := errors.AsType[*operate.SpoiltError](err); ok {
		for _, l := range spoilt.Limiters {
			broken[l.Limiter] = l
		}
	} else if err != nil {
		return nil, err
	}
	found := make(map[string]operate.FleetUsage, len(usages))
	for _, u := range usages {
		found[u.Name] = u
	}
	for i := range limits {
		lo := &limits[i]
		for _, l := range lo.Limiters {
			if err := broken[l.Name]; err != nil {
				lo.Broken = append(lo.Broken, err)
			}
		}
		if l := v.plans.Limits()[i]; l.Key == "" && l.Adapt != (throttle.Adapt{}) {
			learnt, ok, err := v.inspector.fleet.Learnt(ctx, l.Name)
			if err != nil {
				return nil, err
			}
			if ok {
				lo.Learnt = &learnt
			}
		}
		lo.Limiters = slices.DeleteFunc(lo.Limiters, func(l LimiterOverview) bool { _, ok := found[l.Name]; return !ok })
		for n := range lo.Limiters {
			lo.Limiters[n].FleetUsage = found[lo.Limiters[n].Name]
		}
	}
	return limits, nil
}

func (v *View) poolsOverview(ctx context.Context, lines parkedLines) ([]PoolOverview, error) {
	known, err := v.inspector.Queues(ctx)
	if err != nil {
		return nil, err
	}
	var pools []PoolOverview
	var queues []*QueueOverview
	for _, pool := range v.pools() {
		p := PoolOverview{Name: pool.Name, Slots: pool.Slots, MaxWaiting: pool.MaxWaiting}
		for _, name := range slices.Sorted(maps.Keys(pool.Weights)) {
			p.Queues = append(p.Queues, QueueOverview{Name: name, Weight: pool.Weights[name]})
		}
		slices.SortStableFunc(p.Queues, func(a, b QueueOverview) int { return cmp.Compare(b.Weight, a.Weight) })
		pools = append(pools, p)
	}
	for i := range pools {
		for n := range pools[i].Queues {
			if q := &pools[i].Queues[n]; slices.Contains(known, q.Name) {
				queues = append(queues, q)
			}
		}
	}
	if err := errors.Join(v.readQueues(ctx, queues, lines)...); err != nil {
		return nil, err
	}
	return pools, nil
}

// queuesAtOnce is how many queues are read at a time: asynq makes three round trips for each.
const queuesAtOnce = 4

// readQueues reads what asynq says about queues. It returns an error for each of them, nil if it was read.
func (v *View) readQueues(ctx context.Context, queues []*QueueOverview, lines parkedLines) []error {
	of := v.inspector.asynqWithin(ctx)
	errs := make([]error, len(queues))
	var reads sync.WaitGroup
	for from := range min(len(queues), queuesAtOnce) {
		reads.Go(func() {
			for n := from; n < len(queues); n += queuesAtOnce {
				q := queues[n]
				info, err := of.GetQueueInfo(q.Name)
				if err != nil {
					errs[n] = fmt.Errorf("read queue %q: %w", q.Name, err)
					continue
				}
				q.add(info, lines.queues[q.Name])
			}
		})
	}
	reads.Wait()
	return errs
}

// add adds what asynq says. So many jobs are in lines; a task may have moved between the two reads.
func (q *QueueOverview) add(info *asynq.QueueInfo, parked int64) {
	q.Pending, q.Active, q.Scheduled = int64(info.Pending), int64(info.Active), int64(info.Scheduled)
	q.Archived, q.Completed, q.Paused = int64(info.Archived), int64(info.Completed), info.Paused
	q.Parked = min(parked, int64(info.Retry))
	q.Retry = int64(info.Retry) - q.Parked
}
