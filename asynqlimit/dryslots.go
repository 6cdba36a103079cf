package asynqlimit

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/jobthrottle/jobthrottle/internal/arrived"
	"github.com/jobthrottle/jobthrottle/internal/plan"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// drySlots are the slots that a job has of limits in flight with dry_run, while it runs.
type drySlots struct {
	mu   sync.Mutex
	over bool
	held []drySlot
}

// drySlots reports whether a limit in flight in Redis has dry_run in the configuration.
func (rs *rules) drySlots(limiter string) bool {
	for l := range rs.slots {
		if l.Dry && l.Has(limiter) {
			return true
		}
	}
	return false
}

type drySlot struct {
	lease  *throttle.Lease
	counts *slotCounts
}

// dryRunSlots asks the limits in flight with dry_run for slots, which the job holds until it ends.
func (j *job) dryRunSlots() {
	if len(j.needs.drySlots) > 0 {
		j.l.dryRuns.ask(func(ctx context.Context) {
			for _, s := range j.needs.drySlots {
				j.drySlot(ctx, s)
			}
		})
	}
}

// drySlot takes a slot if there is one, and reports it if there is none.
func (j *job) drySlot(ctx context.Context, s plan.Slot) {
	counts, err := &j.l.rules.slots[s.Limit].counts, s.Mistake
	because := slog.String("wait", "for a slot")
	if err == nil {
		var lease *throttle.Lease
		var taken bool
		switch lease, taken, err = j.l.dryRuns.slot(ctx, s, holder(j.a.queue, j.a.id)); {
		case lease != nil:
			j.drySlots.add(drySlot{lease, counts})
			return
		case taken:
			err = nil
		case blockedBySlots(err) == nil:
			return // Redis has not decided
		}
	}
	counts.wouldWait.Add(1)
	if err != nil {
		because = slog.Any("error", err)
	}
	j.l.dryRuns.report(s.Limit.Name, s.Limiter, j.task.Type(), j.a.id, because)
}

// slot takes a slot, or tells that all are taken. It does not wait in line for one.
func (d *dryRuns) slot(ctx context.Context, s plan.Slot, holder string) (lease *throttle.Lease, taken bool, err error) {
	f, err := d.p.throttle.InFlight(s.Limiter, s.Limit.Slots)
	if err != nil {
		return nil, false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var refused atomic.Bool
	lease, err = f.Acquire(arrived.WithSlots(ctx, arrived.Slots{Refused: func() {
		refused.Store(true)
		cancel()
	}}), holder)
	return lease, refused.Load(), err
}

// add notes a slot of the job. If the job has ended meanwhile, the slot goes back.
func (d *drySlots) add(s drySlot) {
	s.counts.held.Add(1)
	s.counts.running.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.held = append(d.held, s)
	if d.over {
		d.free()
	}
}

// end gives the slots back: the job has ended.
func (d *drySlots) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	d.free()
}

func (d *drySlots) free() {
	for _, s := range d.held {
		giveBackSlots(s.lease)
		s.counts.running.Add(-1)
	}
	d.held = nil
}
