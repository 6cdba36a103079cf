package driver

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// queue is a line at work. Whoever holds the mutex may step the line. Calls are made without
// the mutex.
type queue struct {
	c        *Client
	members  []Member
	limiters []*limiter   // of the members
	users    atomic.Int32 // calls that use the queue now
	stock    stock

	mu      sync.Mutex
	line    *line.Line
	out     line.Actions
	told    []int64                        // how much of limiter.reserved is this line's
	leaving map[*line.Waiter]chan struct{} // closed when what they had is given back
	timer   *time.Timer
	poke    chan struct{} // cuts a pause between calls short
	stopped chan struct{} // closed when a closed line has given back what it could
}

func newQueue(c *Client, members []Member, known line.Memory) *queue {
	config := line.Config{Client: c.ID, Known: known, Clock: c.clock, Reply: c.replyKey(members[0]), Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))}
	if way := c.way.Load(); way != nil {
		config.Way = *way
	}
	q := &queue{
		c: c, members: members, told: make([]int64, len(members)),
		poke: make(chan struct{}, 1), stopped: make(chan struct{}),
	}
	for _, m := range members {
		config.Members = append(config.Members, script.KeysOf(m.Name, c.ID))
		q.limiters = append(q.limiters, c.limiter(m, q))
	}
	q.line = line.New(config)
	return q
}

// retired is the number of users of a queue that the Client has forgotten.
const retired = math.MinInt32

// enter keeps the queue from being forgotten until leave. It returns false if the queue has
// been forgotten already.
func (q *queue) enter() bool {
	if q.users.Add(1) > 0 {
		return true
	}
	q.leave()
	return false
}

func (q *queue) leave() { q.users.Add(-1) }

// retire reports whether the queue was idle and can no longer be entered. It also returns
// what the queue leaves, if that is useful.
func (q *queue) retire() (idle bool, m line.Memory, leaves bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	idle = q.line.Idle(q.c.now())
	q.publish()
	if !idle || !q.users.CompareAndSwap(0, retired) {
		return false, m, false
	}
	q.stock.back()
	if q.timer != nil {
		q.timer.Stop()
	}
	m, leaves = q.line.Memory()
	return true, m, leaves
}

func (q *queue) fail(member int, err error) error {
	return q.failed(line.Answer{Err: err, Member: member})
}

// failed is the error for an answer that is no grant. A limit that adapts is told how many
// permits it ought to give at once.
func (q *queue) failed(a line.Answer) error {
	name := q.members[a.Member].Name
	if a.Err == line.ErrExceedsRate {
		q.c.want(name, a.N)
	}
	return q.c.Fail(name, a)
}

// happens makes a step whose caller needs no result.
func (q *queue) happens(what line.Kind) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.step(line.Event{Kind: what})
}

// step tells the line what happened, and does what is to be done about it, except calls:
// these are left to whoever calls step. What it returns is valid as long as the mutex is
// held.
func (q *queue) step(e line.Event) *line.Actions {
	c, a, out := q.c, &q.line.Around, &q.out
	a.Answered, a.FirstCall, a.Hears = c.answered.Load(), line.Local(c.firstCall.Load()), c.changes.heard.Load()
	a.TimerLate = c.punctual.late()
	for i, l := range q.limiters {
		a.Elsewhere[i], a.Create[i] = l.reserved.Load()-q.told[i], l.create()
	}
	now := c.now()
	a.Drawn = q.stock.back()
	q.line.Step(e, now, out)
	q.stock.lend(q.line.Lend(now))
	q.publish()
	for _, t := range out.Answers {
		tell(t.Waiter, t.Answer)
	}
	for i, r := range out.Served {
		r.Done <- out.Ends[i]
	}
	for _, w := range out.Left {
		if gave, ok := q.leaving[w]; ok {
			close(gave)
			delete(q.leaving, w)
		}
	}
	c.count(out)
	if out.WayKnown {
		way := q.line.Way()
		c.way.Store(&way)
	}
	if out.Poke {
		select {
		case q.poke <- struct{}{}:
		default:
		}
	}
	if out.Wake != 0 {
		if q.line.Waits() {
			c.listen()
		}
		q.wakeAfter(out.Wake.Sub(c.now()))
	}
	if out.Start {
		if q.timer != nil {
			q.timer.Stop()
		}
		c.wg.Go(q.run)
	}
	if out.Stopped {
		if q.timer != nil {
			q.timer.Stop()
		}
		close(q.stopped)
	}
	return out
}

// tell gives a waiter its latest answer. An earlier one that was not read yet is out of date.
func tell(w *line.Waiter, a line.Answer) {
	select {
	case <-w.Out:
	default:
	}
	w.Out <- a
}

// publish tells the client how much this line has reserved.
func (q *queue) publish() {
	for i := range q.told {
		if n := q.line.Reserved(i); n != q.told[i] {
			q.limiters[i].reserved.Add(n - q.told[i])
			q.told[i] = n
		}
	}
}

// count counts what a step did, except permits that are handed out: they count once their caller has them.
func (c *Counters) count(a *line.Actions) {
	if a.Grants+a.Denials+a.Stale+a.Late > 0 && !a.Taken {
		c.Grants.Add(a.Grants)
		c.Denials.Add(a.Denials)
		c.Stale.Add(a.Stale)
		c.Late.Add(a.Late)
	}
}

func (q *queue) wakeAfter(d time.Duration) {
	if q.timer == nil {
		q.timer = time.AfterFunc(d, func() { q.happens(line.Tick) })
	} else {
		q.timer.Reset(d)
	}
}

// flush waits until a closed line has given everything back.
func (q *queue) flush(ctx context.Context) error {
	select {
	case <-q.stopped:
		return nil
	case <-ctx.Done():
		q.mu.Lock()
		defer q.mu.Unlock()
		select {
		case <-q.stopped: // by now: Close waits for many lines, one after another
			return nil
		default:
		}
		if trouble := q.line.Trouble(); trouble != nil {
			return trouble
		}
		return ctx.Err()
	}
}
