package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

const (
	// overviewLines is how many lines of parked tasks an Overview reads: a
	// keyed limit can have one for each of a million values.
	overviewLines = 1000
	// overviewLimiters is how many limiters of a keyed limit it names.
	overviewLimiters = 10
)

// Overview is how the limits and queues of a worker's configuration stand at
// one time, over the whole fleet.
type Overview struct {
	At     time.Time // when it was read, by this process's clock
	Limits []LimitOverview
	Pools  []PoolOverview
	Unread int64 // lines of parked tasks that were too many to read: their tasks count as Retry
}

// LimitOverview is a limit of the configuration.
type LimitOverview struct {
	Name   string
	Rate   throttle.Rate // as configured: an operator may have changed it since
	Key    string        // empty if there is one limiter for all
	Jobs   []string      // the patterns of jobs that draw on it
	Parked int64         // tasks that wait for it outside of slots
	Lines  int64         // limiters that they wait for
	// Limiters has one element, or none if nobody has created the limiter yet.
	// Of a keyed limit, it has those with the longest lines.
	Limiters []LimiterOverview
	// Broken are limiters that are missing in Limiters because somebody wrote
	// into Redis what makes no sense there.
	Broken []error
}

// LimiterOverview is a limiter in Redis.
type LimiterOverview struct {
	operate.FleetUsage
	Configured throttle.Rate // that of its value, where the limit has rates for some
	Parked     int64
}

// PoolOverview is a pool of the configuration.
type PoolOverview struct {
	Name       string
	Slots      int
	MaxWaiting int
	Queues     []QueueOverview // by weight
}

// QueueOverview is what asynq says of a queue, except that it counts parked
// tasks as tasks to retry, and here they are told apart.
type QueueOverview struct {
	Name                                                           string
	Weight                                                         int
	Pending, Active, Scheduled, Retry, Parked, Archived, Completed int64
	Paused                                                         bool
}

// Overview reads how the limits and queues of this worker's configuration
// stand. It changes nothing. It costs a script call a limit and client, and
// some calls a queue: call it once a second at most.
func (w *Worker) Overview(ctx context.Context) (Overview, error) {
	o := Overview{At: time.Now()}
	lines, err := w.readLines(ctx)
	if err != nil {
		return Overview{}, err
	}
	o.Unread = lines.unread
	if o.Limits, err = w.overlookLimits(ctx, lines); err != nil {
		return Overview{}, err
	}
	o.Pools, err = w.overlookPools(lines)
	return o, err
}

// Fleet reads and pins limiters, in this worker's Redis.
func (w *Worker) Fleet() *operate.Fleet { return operate.NewFleet(w.rdb) }

// Inspector reads which tasks wait for which limit, in this worker's Redis.
func (w *Worker) Inspector() *Inspector { return NewInspector(w.rdb) }

func (w *Worker) overlookLimits(ctx context.Context, lines parkedLines) ([]LimitOverview, error) {
	var limits []LimitOverview
	var names []string
	for _, l := range w.plans.Limits() {
		lo := LimitOverview{Name: l.Name, Rate: l.Rate, Key: l.Key}
		limiters := []string{l.Name}
		if l.Key != "" {
			limiters = lines.longest(l.Name + ":")
		}
		lo.Lines, lo.Parked = lines.of(l)
		for _, name := range limiters {
			lo.Limiters = append(lo.Limiters, LimiterOverview{FleetUsage: operate.FleetUsage{Name: name}, Configured: l.RateOf(name), Parked: lines.tasks[name]})
		}
		names = append(names, limiters...)
		for _, j := range w.plans.All() {
			if slices.Contains(j.Limits, l) {
				lo.Jobs = append(lo.Jobs, j.Name)
			}
		}
		slices.Sort(lo.Jobs)
		limits = append(limits, lo)
	}
	usages, err := w.Fleet().Inspect(ctx, names...)
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
		lo.Limiters = slices.DeleteFunc(lo.Limiters, func(l LimiterOverview) bool { _, ok := found[l.Name]; return !ok })
		for n := range lo.Limiters {
			lo.Limiters[n].FleetUsage = found[lo.Limiters[n].Name]
		}
	}
	return limits, nil
}

func (w *Worker) overlookPools(lines parkedLines) ([]PoolOverview, error) {
	known, err := w.inspector.Queues() // those that a job was ever enqueued in
	if err != nil {
		return nil, fmt.Errorf("read the names of the queues: %w", err)
	}
	var pools []PoolOverview
	for _, pc := range w.cfg.Pools {
		p := PoolOverview{Name: pc.Name, Slots: pc.Concurrency, MaxWaiting: pc.WaitingSlots()}
		for _, name := range sortedKeys(pc.QueueWeights()) {
			q := QueueOverview{Name: name, Weight: pc.QueueWeights()[name]}
			if slices.Contains(known, name) {
				info, err := w.inspector.GetQueueInfo(name)
				if err != nil {
					return nil, fmt.Errorf("read queue %q: %w", name, err)
				}
				q.Pending, q.Active, q.Scheduled = int64(info.Pending), int64(info.Active), int64(info.Scheduled)
				q.Archived, q.Completed, q.Paused = int64(info.Archived), int64(info.Completed), info.Paused
				q.Parked = min(lines.queues[name], int64(info.Retry)) // one may be on its way from here to there
				q.Retry = int64(info.Retry) - q.Parked
			}
			p.Queues = append(p.Queues, q)
		}
		slices.SortStableFunc(p.Queues, func(a, b QueueOverview) int { return cmp.Compare(b.Weight, a.Weight) })
		pools = append(pools, p)
	}
	return pools, nil
}

// parkedLines are how many tasks are in line.
type parkedLines struct {
	tasks  map[string]int64 // by limiter
	queues map[string]int64 // by queue, over all limiters
	unread int64
}

func (w *Worker) readLines(ctx context.Context) (parkedLines, error) {
	lines := parkedLines{tasks: map[string]int64{}, queues: map[string]int64{}}
	fail := func(err error) (parkedLines, error) {
		return parkedLines{}, fmt.Errorf("read the lines of parked tasks: %w", err)
	}
	queues, err := w.inspector.Queues()
	if err != nil {
		return fail(err)
	}
	queues = append(queues, w.queues()...)
	slices.Sort(queues)
	queues = slices.Compact(queues)
	names, all, err := w.lines.First(ctx, queues, overviewLines)
	if err != nil {
		return fail(err)
	}
	left := overviewLines
	for i, queue := range queues {
		read := names[i][:min(len(names[i]), left)]
		left -= len(read)
		lines.unread += max(all[i]-int64(len(read)), 0)
		lengths, err := w.lines.Lengths(ctx, []string{queue}, read)
		if err != nil {
			return fail(err)
		}
		for name, length := range lengths {
			lines.add(name, queue, length[0].Waiting)
		}
	}
	return lines, nil
}

func (p parkedLines) add(limiter, queue string, n int64) {
	if n > 0 {
		p.tasks[limiter] += n
		p.queues[queue] += n
	}
}

// of returns how many limiters of a limit have tasks in line, and how many those are.
func (p parkedLines) of(l *plan.Limit) (limiters, tasks int64) {
	for name, n := range p.tasks {
		if name == l.Name && l.Key == "" || l.Key != "" && strings.HasPrefix(name, l.Name+":") {
			limiters, tasks = limiters+1, tasks+n
		}
	}
	return limiters, tasks
}

// longest returns the limiters with that prefix that have the longest lines.
func (p parkedLines) longest(prefix string) []string {
	var names []string
	for name := range p.tasks {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(p.tasks[b], p.tasks[a]), strings.Compare(a, b))
	})
	return names[:min(len(names), overviewLimiters)]
}
