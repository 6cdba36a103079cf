package line

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// MaxClaimed is how many lines of a queue one pass claims at most.
	MaxClaimed = 100
	// maxKnown is how many lines of a queue a process knows about, and maxMeasured is for how
	// many of them it knows their length.
	maxKnown, maxMeasured = 1000, 20
	// visitLasts is how long a visit may take before another process visits the line.
	visitLasts = 2 * time.Second
	// VisitAgain is how soon a line is visited again if it has permits for tasks that parked too recently to be called.
	VisitAgain = 40 * time.Millisecond
	// calledCounts is for how long a called task counts if nobody has taken it.
	calledCounts = 5 * time.Second
	// AskingCounts is for how long a called task counts after it was taken, if nobody says that its limiter has answered.
	AskingCounts = time.Second
	// absence is how long after the last visit of one of its lines a queue counts as one that
	// nobody runs.
	absence = time.Second
	// fullFor is after how long nothing is kept for a queue if all who visit it have less capacity than there are permits. Within
	// that time a process that has more visits it, also if others have called their tasks 200 ms before the permits are due.
	fullFor = 350 * time.Millisecond
)

// Due is what a queue has in line.
type Due struct {
	Queue   string
	Paused  bool
	All     int64            // how many lines of limiters there are
	Next    time.Duration    // until one of them is due; negative if there is none
	Claimed []Claimed        // lines that the caller is to visit
	Known   map[string]int64 // tasks by line, -1 where that was not asked
	Cut     bool             // there may be other lines of tasks that cannot run
}

// Claimed is a line to visit.
type Claimed struct {
	Name   string
	Out    int64 // permits of its tasks that were called and that nobody has taken yet
	Asking int64 // permits of its called tasks that were taken and that the limiter has yet to answer, as far as Redis knows
	Tasks  int64 // in the line
	Cost   int64 // of the first task
	Also   bool  // it was not due, but named: others may visit it, too
}

// ToVisit is how many of the claimed lines were due.
func (d Due) ToVisit() int {
	n := 0
	for _, c := range d.Claimed {
		if !c.Also {
			n++
		}
	}
	return n
}

// Has reports whether a line is among the claimed ones.
func (d Due) Has(name string) bool {
	return slices.ContainsFunc(d.Claimed, func(c Claimed) bool { return c.Name == name })
}

// Due claims lines of the queues that are due for a visit, at most claims lines of each queue,
// and returns which lines there are. A queue that the error concerns has no Known. If a worker
// that does not know tenants has removed lines that tenants share, Due puts them back among the
// lines to visit, if the queue has at most restores of them. It also returns the lines named in also, by queue, that are there,
// as if they were due.
func (l *Lines) Due(ctx context.Context, queues []string, claims, restores int, also map[string][]string) ([]Due, error) {
	calls := make([]call, len(queues))
	for i, queue := range queues {
		calls[i] = call{[]string{pausedKey(queue), linesKey(queue, ""), blockedKey(queue)}, append([]any{
			queuePrefix(queue), visitLasts.Milliseconds(), min(claims, MaxClaimed), maxKnown, maxMeasured, calledCounts.Milliseconds(), rand.Float64(), restores}, anys(also[queue])...)}
	}
	replies, err := l.all(ctx, l.due, calls)
	due := make([]Due, len(queues))
	for i, reply := range replies {
		if due[i].Queue = queues[i]; reply == nil {
			continue
		}
		d, failed := parseDue(queues[i], reply)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		due[i] = d
	}
	return due, err
}

func parseDue(queue string, reply any) (Due, error) {
	r := reader{reply: reply}
	d := Due{Queue: queue, Known: map[string]int64{}}
	d.Paused = r.int() == 1
	d.All = r.int()
	d.Next = time.Duration(r.int()) * time.Millisecond
	for range r.int() {
		d.Claimed = append(d.Claimed, Claimed{Name: r.text(), Out: r.int(), Asking: r.int(), Tasks: r.int(), Cost: r.int(), Also: r.int() == 1})
	}
	blocked := 0
	for r.more() {
		name := r.text()
		if d.Known[name] = r.int(); IsBlocked(name) {
			blocked++
		}
	}
	d.Cut = blocked >= maxKnown
	return d, r.failed("due.lua")
}

// Demand is what a queue could call for a limiter.
type Demand struct {
	Queue     string
	Weight    int64
	Left, Out int64 // permits of tasks in line, and of tasks on their way
	Cost      int64 // of a task, about
	Unused    int64 // permits of an earlier share for which no task was called
}

// Sharing is a limiter whose permits are shared among queues.
type Sharing struct {
	Limiter  string
	Client   string   // whose permits they are, where each process has its own; else empty
	Due      int64    // permits that are due
	Kept     int64    // of these: when no others are left, no task is called
	Capacity int64    // how many tasks of the queues the caller can take
	Short    bool     // the permits are for more tasks than that
	Serves   []string // the caller's queues; it need not visit all of them
	Queues   []Demand // those that it visits
}

// Share returns for each limiter for how many permits each of its queues may call tasks: for none
// where the error concerns the limiter.
func (l *Lines) Share(ctx context.Context, of []Sharing) ([][]int64, error) {
	calls := make([]call, len(of))
	for i, s := range of {
		args := []any{s.Due, absence.Milliseconds(), s.Capacity, s.Kept, s.Short, fullFor.Milliseconds(), len(s.Serves)}
		args = append(args, anys(s.Serves)...)
		for _, d := range s.Queues {
			args = append(args, d.Queue, max(d.Weight, 1), d.Left, d.Out, max(d.Cost, 1), d.Unused)
		}
		keys := []string{queuesKey(s.Limiter)}
		if s.Client != "" {
			keys = append(keys, ownQueuesKey(s.Limiter, s.Client))
		}
		calls[i] = call{keys, args}
	}
	replies, err := l.all(ctx, l.share, calls)
	shares := make([][]int64, len(of))
	for i, reply := range replies {
		r := reader{reply: reply}
		shares[i] = make([]int64, len(of[i].Queues))
		for n := range shares[i] {
			shares[i][n] = r.int()
		}
		if reply != nil {
			err = errors.Join(err, r.failed("share.lua"))
		}
	}
	return shares, err
}

// Visit is what to do with a line.
type Visit struct {
	Line     string
	Permits  int64         // to call tasks for
	From     float64       // where in the line to begin, from 0, its head, to 1
	InOrder  bool          // no task is called before one at the head that parked just now, and came so or waits for max_in_flight
	OneByOne bool          // nor before one of its order that came earlier and has not ended: see Order
	Next     time.Duration // until the next visit
	Also     bool          // leaves the time of the next visit as it is

	// For the line of a tenant, in place of From, InOrder and OneByOne: the start tag of its
	// first task, and its weight.
	Start, Weight float64
}

// Brought is the result of a Visit.
type Brought struct {
	Called int64
	Cost   int64 // permits of the called tasks
	Left   int64 // tasks left in line
}

// Bring calls tasks from lines of queues to the heads of the queues. Tasks of tenants come there
// in the order of their start tags. For queues that the error concerns it returns nothing.
func (l *Lines) Bring(ctx context.Context, queues []string, visits [][]Visit) ([][]Brought, error) {
	calls := make([]call, len(queues))
	for i, queue := range queues {
		args := []any{queuePrefix(queue), (2 * calledCounts).Milliseconds(), VisitAgain.Milliseconds()}
		for _, visit := range visits[i] {
			from, next := visit.From, visit.Next.Milliseconds()
			if visit.Also {
				next = -1
			}
			if visit.InOrder {
				from = -1
			}
			if visit.OneByOne {
				from = -2
			}
			if _, tenant, _ := Split(visit.Line); tenant != "" {
				args = append(args, visit.Line, visit.Permits, next, floatText(visit.Start)+" "+floatText(visit.Weight))
				continue
			}
			args = append(args, visit.Line, visit.Permits, next, from)
		}
		calls[i] = call{[]string{pausedKey(queue), pendingKey(queue), retryKey(queue), linesKey(queue, ""), blockedKey(queue)}, args}
	}
	replies, err := l.all(ctx, l.bring, calls)
	brought := make([][]Brought, len(queues))
	for i, reply := range replies {
		if reply == nil {
			continue
		}
		r := reader{reply: reply}
		for range visits[i] {
			brought[i] = append(brought[i], Brought{r.int(), r.int(), r.int()})
		}
		err = errors.Join(err, r.failed("bring.lua"))
	}
	return brought, err
}

// releaseBatch is how many tasks one call of Release returns.
const releaseBatch = 500

// Release returns all tasks of a line of a queue to pending, and returns how many they were.
func (l *Lines) Release(ctx context.Context, queue, name string) (released int64, err error) {
	limiter, tenant, shared := Split(name)
	if shared && tenant == "" {
		for {
			first, err := l.rdb.ZRange(ctx, tenantsKey(queue, limiter), 0, 0).Result()
			if err != nil || len(first) == 0 {
				return released, err
			}
			n, err := l.Release(ctx, queue, OfTenant(limiter, first[0]))
			if released += n; err != nil {
				return released, err
			}
		}
	}
	keys := []string{pendingKey(queue), retryKey(queue), lineKey(queue, name), linesKey(queue, name)}
	if shared {
		keys = append(keys, tenantsKey(queue, limiter), tasksKey(queue))
	}
	for {
		reply, err := l.release.Run(ctx, l.rdb, keys, queuePrefix(queue), name, releaseBatch).Int64Slice()
		if err == nil && len(reply) != 2 {
			err = fmt.Errorf("%d values where 2 were expected", len(reply))
		}
		if err != nil {
			return released, fmt.Errorf("release line %q of queue %q: %w", name, queue, err)
		}
		if released += reply[0]; reply[1] == 0 {
			return released, nil
		}
	}
}

// call is one call of a script.
type call struct {
	keys []string
	args []any
}

// all makes calls of a script in one round trip. If a server does not know the script, it gets
// the whole script. The replies of calls that the error concerns are nil.
func (l *Lines) all(ctx context.Context, s *redis.Script, calls []call) ([]any, error) {
	replies := make([]any, len(calls))
	if len(calls) == 1 {
		reply, err := s.Run(ctx, l.rdb, calls[0].keys, calls[0].args...).Result()
		replies[0] = reply
		return replies, err
	}
	cmds := make([]*redis.Cmd, len(calls))
	_, _ = l.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each reply has its own error
		for i, c := range calls {
			cmds[i] = s.EvalSha(ctx, p, c.keys, c.args...)
		}
		return nil
	})
	var errs []error
	for i, cmd := range cmds {
		reply, err := cmd.Result()
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			reply, err = s.Eval(ctx, l.rdb, calls[i].keys, calls[i].args...).Result()
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		replies[i] = reply
	}
	return replies, errors.Join(errs...)
}

// reader reads the values of a script's reply, one after the other.
type reader struct {
	reply any
	at    int
	bad   bool
}

func (r *reader) next() any {
	values, ok := r.reply.([]any)
	if !ok || r.at >= len(values) {
		r.bad = true
		return nil
	}
	r.at++
	return values[r.at-1]
}

func (r *reader) more() bool {
	values, _ := r.reply.([]any)
	return !r.bad && r.at < len(values)
}

func (r *reader) int() int64 {
	n, ok := r.next().(int64)
	r.bad = r.bad || !ok
	return n
}

func (r *reader) text() string {
	s, ok := r.next().(string)
	r.bad = r.bad || !ok
	return s
}

func (r *reader) failed(script string) error {
	if r.bad || r.more() {
		return fmt.Errorf("%s: unexpected reply %v", script, r.reply)
	}
	return nil
}
