package asynqlimit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// visit is a line of one queue that this process visits.
type visit struct {
	queue    int // index among the queues
	name     string
	out      int64   // permits of tasks that are on their way
	asking   int64   // permits of tasks that have come from it and have no answer yet, as far as Redis knows
	here     int64   // the same, of tasks in this process
	tasks    int64   // in the line
	cost     int64   // of each, about: that of the first
	permits  int64   // to call tasks for; after the call, what is left of them
	called   int64   // tasks
	capacity int64   // tasks that this process can take for its permits
	short    bool    // there are permits for more
	client   string  // whose permits they are, if the limiter is PerClient
	from     float64 // where in the line to begin, from 0 to 1
	inOrder  bool
	opened   bool // its tasks could not run and can again, or its limit has dry_run: they wait for nothing
	oneByOne bool
	also     bool // its time has not come, but these permits are due
	next     time.Duration
}

// unseen returns for how many permits tasks were called that the limiter does not show yet. If the permits are one client's,
// tasks that ask in other processes do not count: they ask for permits of those processes.
func (k *visit) unseen() int64 {
	if k.client != "" {
		return k.out + k.here
	}
	return k.out + max(k.asking, k.here)
}

// bring calls what the visits say, and notes the result.
func (c *caller) bring(ctx context.Context, visits []*visit) error {
	if len(visits) == 0 {
		return nil
	}
	var queues []string
	var of [][]*visit
	for _, k := range visits {
		i := slices.Index(queues, c.queues[k.queue])
		if i < 0 {
			i = len(queues)
			queues, of = append(queues, c.queues[k.queue]), append(of, nil)
		}
		of[i] = append(of[i], k)
	}
	shares := map[*visit]*sharing{}
	for _, k := range visits {
		if limiter, _, shared := line.Split(k.name); shared {
			shares[k] = &sharing{k: k, limiter: limiter}
		}
	}
	derr := c.deal(ctx, slices.Collect(maps.Values(shares)))
	args := make([][]line.Visit, len(queues))
	for i := range queues {
		for _, k := range of[i] {
			if s := shares[k]; s != nil {
				if s.dealt() < k.permits {
					k.next = min(k.next, soonest)
				}
				args[i] = append(append(args[i], s.visits...), line.Visit{Line: k.name, Next: k.next})
				continue
			}
			args[i] = append(args[i], line.Visit{Line: k.name, Permits: k.permits, From: k.from, InOrder: k.inOrder, OneByOne: k.oneByOne, Also: k.also, Next: k.next})
		}
	}
	c.calls(visits)
	brought, err := c.l.lines.Bring(ctx, queues, args)
	if err != nil {
		err = fmt.Errorf("bring waiting jobs back: %w", err)
	}
	err = errors.Join(err, derr)
	began := time.Now()
	var unused []*visit
	var charges []line.Charge
	var clears []*sharing
	for i, queue := range queues {
		called, n := int64(0), 0
		for _, k := range of[i] {
			if n >= len(brought[i]) { // it could not be visited
				break
			}
			b := brought[i][n]
			if s := shares[k]; s != nil {
				own := brought[i][n : n+len(s.visits)]
				n += len(s.visits)
				b = line.Brought{Left: k.tasks}
				for _, of := range own {
					b.Called, b.Cost, b.Left = b.Called+of.Called, b.Cost+of.Cost, b.Left-of.Called
				}
				if brought[i][n].Left == 0 {
					b.Left = 0
				}
				c.costs(k.name, b)
				if charge, due := s.charge(queue, c.l.rules.limitOf(s.limiter), own, brought[i][n].Left == 0); due {
					charges = append(charges, charge)
				}
				if s.hasGone(own) {
					clears = append(clears, s)
				}
			}
			n++
			k.called = b.Called
			called += b.Called
			c.expect(probeKey{queue, k.name}, k.permits, b)
			c.tried(queue, k, b)
			if limiter, _ := line.SlotLimit(k.name); k.oneByOne && b.Called == 0 && b.Left > 0 {
				c.resting[limiter] = began.Add(restsFor)
			}
			k.out, k.tasks, k.permits = k.out+b.Cost, b.Left, k.permits-b.Cost
			limiter, _, _ := line.Split(k.name)
			c.promised(limiter, b.Cost)
			c.note(queue, k.name, b.Left)
			if k.permits != 0 && !k.opened && !line.IsBlocked(k.name) {
				unused = append(unused, k)
			}
		}
		c.l.gate.expect(queue, int(called))
	}
	if len(charges) > 0 {
		err = errors.Join(err, c.l.lines.Charge(ctx, charges))
	}
	return errors.Join(err, c.clearGone(ctx, clears), c.refund(ctx, unused))
}
