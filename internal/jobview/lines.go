package jobview

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
)

// MaxLines is how many lines of parked tasks an Overview reads: a keyed limit can have a line
// for each of a million values. If there are more, it also reads up to MaxLines lines of limits
// without a key, and the ages of up to MaxLines others.
const MaxLines = 1000

// parkedLines is what an Overview has read about the lines.
type parkedLines struct {
	tasks  map[string]int64 // by limiter
	queues map[string]int64 // by queue, over all limiters
	unread int64
	seen   []string // the queues
	oldest map[*plan.Limit]lineAge
}

// lineAt is the line that a queue has for a limiter.
type lineAt struct{ queue, line string }

// lineAge is how long the first task of a line has waited.
type lineAge struct {
	lineAt
	age time.Duration
}

// queueLines are the lines of one queue.
type queueLines struct {
	queue  string
	read   []string // the first lines
	all    int64
	single []string // if there are more: lines of limits without a key, for which most jobs wait
}

// more reports whether there are lines that are not read.
func (q queueLines) more() bool { return q.all > int64(len(q.read)) }

func (v *View) readLines(ctx context.Context) (parkedLines, error) {
	p := parkedLines{tasks: map[string]int64{}, queues: map[string]int64{}, oldest: map[*plan.Limit]lineAge{}}
	queues, err := v.firstLines(ctx)
	for _, q := range queues {
		p.seen = append(p.seen, q.queue)
		if err == nil {
			err = v.readQueue(ctx, &p, q)
		}
	}
	if err == nil {
		err = v.ages.refresh(ctx, v, &p, queues)
	}
	if err != nil {
		return parkedLines{}, fmt.Errorf("read the lines of parked tasks: %w", err)
	}
	return p, nil
}

// firstLines returns the lines to read of each queue: those that a worker visits next.
func (v *View) firstLines(ctx context.Context) ([]queueLines, error) {
	queues, err := v.inspector.Queues(ctx)
	if err != nil {
		return nil, err
	}
	for _, pool := range v.pools() {
		queues = slices.AppendSeq(queues, maps.Keys(pool.Weights))
	}
	slices.Sort(queues)
	queues = slices.Compact(queues)
	names, all, err := v.inspector.lines.First(ctx, queues, MaxLines)
	if err != nil {
		return nil, err
	}
	lines, left, more := make([]queueLines, len(queues)), MaxLines, MaxLines
	for i, queue := range queues {
		lines[i] = queueLines{queue: queue, read: names[i][:min(len(names[i]), left)], all: all[i]}
		left -= len(lines[i].read)
		if lines[i].more() {
			single := v.single(lines[i].read)
			lines[i].single = single[:min(len(single), more)]
			more -= len(lines[i].single)
		}
	}
	return lines, nil
}

// single returns the names of the lines of limits without a key, except the given ones.
func (v *View) single(but []string) []string {
	known := make(map[string]bool, len(but))
	for _, name := range but {
		known[name] = true
	}
	var names []string
	for _, l := range v.plans.Limits() {
		name := l.Name
		if l.Share != "" {
			name = line.SharedBy(name)
		}
		if l.Key == "" && !known[name] {
			names = append(names, name)
		}
	}
	return names
}

// readQueue reads lines of a queue.
func (v *View) readQueue(ctx context.Context, p *parkedLines, q queueLines) error {
	names := slices.Concat(q.read, q.single)
	heads, now, err := v.inspector.lines.Heads(ctx, q.queue, names)
	if err != nil {
		return err
	}
	p.unread += max(q.all-int64(len(q.read)), 0)
	for i, name := range names {
		if i >= len(q.read) && heads[i].Tasks > 0 {
			p.unread--
		}
		limiter, _, _ := line.Split(name)
		p.add(limiter, q.queue, heads[i].Tasks)
		p.see(v.limitOf(limiter), lineAt{q.queue, name}, heads[i], now)
	}
	return nil
}

func (p *parkedLines) add(limiter, queue string, n int64) {
	if n > 0 {
		p.tasks[limiter] += n
		p.queues[queue] += n
	}
}

// see records how long the first task of a line has waited.
func (p *parkedLines) see(l *plan.Limit, at lineAt, head line.Head, now time.Time) {
	if l == nil || head.Since.IsZero() {
		return
	}
	age := max(now.Sub(head.Since), 0)
	if oldest, ok := p.oldest[l]; !ok || age > oldest.age {
		p.oldest[l] = lineAge{at, age}
	}
}

// byLimit returns the limiters that have tasks in line, by their limit.
func (v *View) byLimit(p parkedLines) map[*plan.Limit][]string {
	of := map[*plan.Limit][]string{}
	for name := range p.tasks {
		if l := v.limitOf(name); l != nil {
			of[l] = append(of[l], name)
		}
	}
	return of
}

// sum is how many tasks are in the lines of the limiters.
func (p *parkedLines) sum(limiters []string) (tasks int64) {
	for _, name := range limiters {
		tasks += p.tasks[name]
	}
	return tasks
}

// longest returns the limiters that have the longest lines.
func (p *parkedLines) longest(limiters []string) []string {
	limiters = slices.SortedFunc(slices.Values(limiters), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.tasks[b], p.tasks[a]), strings.Compare(a, b))
	})
	return limiters[:min(len(limiters), MaxLimiters)]
}

// ages finds the oldest task in line of each limit if there are more lines than an Overview
// reads. An Overview reads the lines whose limiters grant permits soon, so a line whose limiter
// is stuck would never be among them. ages goes through all lines, some at each refresh, and
// reads the oldest that it knows again.
type ages struct {
	mu    sync.Mutex
	next  map[string]int64 // by queue: the line to go on with
	known map[*plan.Limit]lineAt
}

// refresh adds the ages of some more lines to p.
func (a *ages) refresh(ctx context.Context, v *View, p *parkedLines, queues []queueLines) error {
	all := int64(0)
	for _, q := range queues {
		if q.more() {
			all += q.all
		}
	}
	a.mu.Lock()
	from, known := a.next, a.known // nobody changes them: they are only replaced
	a.mu.Unlock()
	next := map[string]int64{}
	for _, q := range queues {
		if !q.more() {
			continue
		}
		most := max(MaxLines*q.all/all, 1)
		names, err := v.inspector.lines.Some(ctx, q.queue, from[q.queue], most)
		if err != nil {
			return err
		}
		if int64(len(names)) == most {
			next[q.queue] = from[q.queue] + most
		}
		for _, at := range known {
			if at.queue == q.queue {
				names = append(names, at.line)
			}
		}
		heads, now, err := v.inspector.lines.Heads(ctx, q.queue, names)
		if err != nil {
			return err
		}
		for i, name := range names {
			limiter, _, _ := line.Split(name)
			p.see(v.limitOf(limiter), lineAt{q.queue, name}, heads[i], now)
		}
	}
	known = map[*plan.Limit]lineAt{}
	for l, oldest := range p.oldest {
		known[l] = oldest.lineAt
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.next, a.known = next, known
	return nil
}

// limitOf returns the limit that a limiter belongs to, or nil.
func (v *View) limitOf(limiter string) *plan.Limit {
	if l := v.limits[limiter]; l != nil && l.Key == "" {
		return l
	}
	for i, c := range limiter {
		if l := v.limits[limiter[:i]]; c == ':' && l != nil && l.Key != "" {
			return l
		}
	}
	return nil
}
