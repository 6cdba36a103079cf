package jobview

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/producer"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// CopySuffix ends the id of a task that goes on instead of one that was put off on its last
// attempt. Only earlier versions made such copies.
const CopySuffix = "~1"

// StateParked is the state of a task that is in line for permits or for a slot. asynq has it
// in its retry set, although it did not fail. The other states are asynq's own:
// asynq.TaskState.String.
const StateParked = "parked"

// Explanation is the state of a task, and what holds it. Its JSON is what commands and pages
// show. Text says the same in sentences.
type Explanation struct {
	ID      string    `json:"id"`
	Queue   string    `json:"queue"`
	Type    string    `json:"type"`
	State   string    `json:"state"`
	At      time.Time `json:"at"`                // when this was read; all its times are by Redis's clock
	CopyOf  string    `json:"copy_of,omitempty"` // the id of the task that was asked for and goes on as this one
	Retried int       `json:"retried"`
	// MaxRetry is the number of retries its producer asked for.
	MaxRetry int `json:"max_retry"`

	// QueuePaused says that asynq takes no task from the queue. Servers is how many pools of
	// running workers serve it.
	QueuePaused bool `json:"queue_paused"`
	Servers     int  `json:"servers"`

	// NoHandler says that no running worker has a handler for the type. Lacking is how many of
	// the workers that serve the queue have none. Configs are the configurations of these
	// workers, if they have several.
	NoHandler bool        `json:"no_handler"`
	Lacking   int         `json:"lacking"`
	Configs   []Differing `json:"configs,omitempty"`

	// Ahead is how many tasks come first: in the queue while the task is pending, in the line
	// while it is parked. Nil if unknown, in a very long queue.
	Ahead *int64 `json:"ahead,omitempty"`
	// Since is when it parked for the limiter (first, in this wait), when its worker took it,
	// when it was completed, or when it last failed.
	Since time.Time `json:"since,omitzero"`
	// ComesBack is when it is tried next. It is exact for scheduled and failed tasks. For
	// parked ones it is an estimate, because it depends on the other tasks.
	ComesBack time.Time `json:"comes_back,omitzero"`

	// Limiter is what holds a parked task.
	Limiter *HoldingLimiter `json:"limiter,omitempty"`
	// Tenant is the tenant of the task, where tenants share that limiter.
	Tenant *HoldingTenant `json:"tenant,omitempty"`
	// Slots is the limit in flight whose slots a parked task waits for.
	Slots *HoldingSlots `json:"slots,omitempty"`
	// Called says that the limiter has called it: it is on its way to a slot.
	Called bool `json:"called"`

	// Worker is the worker that has an active task. Orphaned says that no worker has it any
	// more: its worker died.
	Worker   string `json:"worker,omitempty"`
	Orphaned bool   `json:"orphaned"`

	// Blocked is the reason if the task cannot run until somebody fixes what LastError says.
	Blocked BlockReason `json:"blocked,omitempty"`
	// LastError is the error of its last attempt. PutOff says that this was no failure: a
	// limit, a full max_in_flight, its API or what blocks it made it wait.
	LastError string `json:"last_error,omitempty"`
	PutOff    bool   `json:"put_off"`
	// Group is the group in which an aggregating task waits.
	Group string `json:"group,omitempty"`
}

// HoldingLimiter is the limiter that holds a task, and its usage.
type HoldingLimiter struct {
	Name        string    `json:"name"`
	Cost        int64     `json:"cost"`             // permits of it that the task costs
	Rate        string    `json:"rate,omitempty"`   // empty if Redis has no such limiter any more, or it is broken
	Broken      string    `json:"broken,omitempty"` // what is wrong with its keys in Redis
	PerClient   bool      `json:"per_client"`
	Used        int64     `json:"used"`
	Reserved    int64     `json:"reserved"`
	Available   int64     `json:"available"`
	NextFree    time.Time `json:"next_free,omitzero"`
	PausedUntil time.Time `json:"paused_until,omitzero"`
	// Known is what its API accepts as far as is known, if the limit adapts. OthersSeen is when
	// the API last refused far less than it had accepted.
	Known      string    `json:"known,omitempty"`
	OthersSeen time.Time `json:"others_seen,omitzero"`
}

// HoldingSlots is the limit in flight that holds a task, and its usage.
type HoldingSlots struct {
	Name     string `json:"name"`
	InFlight int64  `json:"in_flight"`        // how many may run; 0 if Redis has no such limit any more, or it is broken
	Broken   string `json:"broken,omitempty"` // what is wrong with its keys in Redis
	Taken    int64  `json:"taken"`
	Waiting  int64  `json:"waiting"` // in workers, for a slot of it
	// Earlier is set if the limit keeps the order of its jobs. It is the job that came earlier,
	// has not ended, and keeps the task waiting. EarlierState is its asynq state.
	Earlier      string `json:"earlier,omitempty"`
	EarlierState string `json:"earlier_state,omitempty"`
}

// Explain finds a task and tells what holds it. An empty queue means all queues. The error is
// asynq.ErrTaskNotFound or asynq.ErrQueueNotFound if there is none, and an *AmbiguousTaskError
// if there are several. Things may change while it reads them.
func (i *Inspector) Explain(ctx context.Context, id, queue string) (*Explanation, error) {
	info, err := i.find(ctx, id, queue)
	if err != nil {
		return nil, err
	}
	now, err := i.rdb.Time(ctx).Result()
	if err != nil {
		return nil, fmt.Errorf("ask Redis for the time: %w", err)
	}
	e := &Explanation{ID: info.ID, Queue: info.Queue, Type: info.Type, State: info.State.String(), At: now, Retried: info.Retried, MaxRetry: info.MaxRetry}
	if info.ID != id {
		e.CopyOf = id
	}
	if most, ours := producer.MaxRetry(info.Headers); ours {
		e.MaxRetry = most
	}
	e.LastError, e.PutOff = info.LastErr, WasPutOff(info.LastErr)
	if reason, _, ok := BlockedFor(info.LastErr); ok && (info.State == asynq.TaskStateRetry || info.State == asynq.TaskStatePending) {
		e.Blocked, e.PutOff = reason, true
	}
	e.Group, e.Orphaned = info.Group, info.IsOrphaned
	if err := errors.Join(i.explainQueue(ctx, e), i.explainWorkers(ctx, e)); err != nil {
		return nil, err
	}
	switch info.State {
	case asynq.TaskStatePending:
		err = errors.Join(i.explainPending(ctx, e), i.explainLine(ctx, e, info))
	case asynq.TaskStateScheduled, asynq.TaskStateRetry:
		e.Since, e.ComesBack = info.LastFailedAt, info.NextProcessAt
		err = i.explainLine(ctx, e, info)
	case asynq.TaskStateArchived:
		e.Since = info.LastFailedAt
	case asynq.TaskStateCompleted:
		e.Since = info.CompletedAt
	}
	if err != nil {
		return nil, fmt.Errorf("explain task %q of queue %q: %w", e.ID, e.Queue, err)
	}
	return e, nil
}

// explainQueue tells how many pools serve the queue, and which worker runs the task.
func (i *Inspector) explainQueue(ctx context.Context, e *Explanation) error {
	of := i.asynqWithin(ctx)
	q, err := of.GetQueueInfo(e.Queue)
	if err != nil {
		return err
	}
	e.QueuePaused = q.Paused
	servers, err := of.Servers()
	if err != nil {
		return err
	}
	for _, s := range servers {
		if _, serves := s.Queues[e.Queue]; !serves || s.Status != "active" {
			continue
		}
		e.Servers++
	}
	if e.State != asynq.TaskStateActive.String() {
		return nil
	}
	for _, s := range servers {
		for _, w := range s.ActiveWorkers {
			if w.TaskID == e.ID && w.Queue == e.Queue {
				e.Worker, e.Since = fmt.Sprintf("%s, process %d", s.Host, s.PID), w.Started
			}
		}
	}
	return nil
}

// maxPosition is how far into a queue a task's position is searched.
const maxPosition = 100_000

// explainPending finds the position in asynq's queue. The last element is the next task.
func (i *Inspector) explainPending(ctx context.Context, e *Explanation) error {
	key := "asynq:{" + e.Queue + "}:pending"
	var at, length *redis.IntCmd
	_, err := i.rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
		at = p.LPos(ctx, key, e.ID, redis.LPosArgs{Rank: -1, MaxLen: maxPosition})
		length = p.LLen(ctx, key)
		return nil
	})
	if errors.Is(err, redis.Nil) {
		return nil // it has moved on, or is far back
	}
	if err == nil {
		ahead := length.Val() - 1 - at.Val()
		e.Ahead = &ahead
	}
	return err
}

// explainLine tells in which limiter's line the task is, if it is in one.
func (i *Inspector) explainLine(ctx context.Context, e *Explanation, info *asynq.TaskInfo) error {
	w, position, waits, err := i.lines.Of(ctx, e.Queue, e.ID)
	if err != nil || !waits || w.Line == "" {
		return err
	}
	limit, slots := line.SlotLimit(w.Line)
	if !slots && line.IsBlocked(w.Line) {
		e.ComesBack = time.Time{} // unknown: when what blocks it is fixed
		return nil
	}
	e.Called, e.Since = w.State == line.Called, time.UnixMicro(w.Since)
	if info.State == asynq.TaskStateRetry {
		e.State = StateParked
	}
	if slots {
		return i.explainSlots(ctx, e, limit)
	}
	limiter, tenant, shared := line.Split(w.Line)
	if shared {
		if err := i.explainTenant(ctx, e, limiter, tenant, position); err != nil {
			return err
		}
		if !e.Called {
			if position, err = i.positionAmong(ctx, e.Queue, limiter, tenant, position); err != nil {
				return err
			}
		}
	}
	if !e.Called {
		ahead, err := i.ahead(ctx, limiter, e.Queue, position)
		if err != nil {
			return err
		}
		e.Ahead = &ahead
	}
	return i.explainLimiter(ctx, e, limiter, max(w.Cost, 1))
}

// explainSlots describes the limit in flight for which a task waits.
func (i *Inspector) explainSlots(ctx context.Context, e *Explanation, limit string) error {
	e.ComesBack = time.Time{} // unknown: when a slot is free
	found, err := i.fleet.InFlight(ctx, 0, limit)
	if spoilt, ok := errors.AsType[*operate.SpoiltError](err); ok {
		e.Slots = &HoldingSlots{Name: limit, Broken: spoilt.Limiters[0].Err.Error()}
		return nil
	}
	if err != nil {
		return err
	}
	e.Slots = &HoldingSlots{Name: limit, InFlight: found[0].Limit, Taken: found[0].Taken, Waiting: found[0].Waiting}
	id, state, err := i.lines.Next(ctx, e.Queue, limit)
	if id != e.ID {
		e.Slots.Earlier, e.Slots.EarlierState = id, state
	}
	return err
}

// maxCosts is how many tasks ahead have their permits counted. The others are assumed to have
// the same average cost.
const maxCosts = 1000

// explainLimiter describes the limiter, and estimates when the task's permits are due.
func (i *Inspector) explainLimiter(ctx context.Context, e *Explanation, name string, cost int64) error {
	e.Limiter = &HoldingLimiter{Name: name, Cost: cost}
	found, err := i.fleet.Inspect(ctx, name)
	if spoilt, ok := errors.AsType[*operate.SpoiltError](err); ok {
		e.Limiter.Broken = spoilt.Limiters[0].Err.Error()
		e.ComesBack = time.Time{} // unknown: when somebody has fixed it
		return nil
	}
	if err != nil {
		return err
	}
	if len(found) == 0 { // it has expired or was deleted: the next task creates it again
		e.ComesBack = e.At
		return nil
	}
	u := found[0]
	l := e.Limiter
	l.Rate, l.PerClient = u.Rate.String(), u.Rate.Type == throttle.PerClient
	l.Used, l.Reserved, l.Available = u.Used, u.Reserved, u.Available
	wait := max(u.NextFree, u.Paused)
	if wait > 0 {
		l.NextFree = e.At.Add(wait)
	}
	if u.Paused > 0 {
		l.PausedUntil = e.At.Add(u.Paused)
	}
	e.ComesBack = e.At.Add(wait)
	learnt, adapts, err := i.fleet.Learnt(ctx, name)
	if err != nil {
		return err
	}
	if adapts {
		l.Known, l.OthersSeen = learnt.Known(), learnt.OthersSeen
	}
	if e.Called || e.Ahead == nil {
		return nil
	}
	first, err := i.Parked(ctx, name, 0, min(*e.Ahead, maxCosts))
	if err != nil || len(first) == 0 && *e.Ahead > 0 {
		return err
	}
	permits := int64(0)
	for _, t := range first {
		permits += t.Permits
	}
	before := float64(cost - 1) // its own, without the one that is free when its permits are due
	if *e.Ahead > 0 {
		before += float64(permits) / float64(len(first)) * float64(*e.Ahead)
	}
	e.ComesBack = e.At.Add(waitFor(u, before))
	return nil
}
