package asynqlimit

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// intake owns the tasks that were taken from their queues and that asynq does not have yet. asynq
// asks for one at a time; while tasks keep coming, one call to Redis takes several. Each has a
// position: a process takes no more tasks than it has capacity for.
type intake struct {
	l  *Limits
	id string // among those that take tasks

	most  int                // how many to take the next time
	sorts map[string]int     // by queue, how many to look at before the next take; 0: none, because they do not have to park
	few   map[string]int     // by queue, how many it has looked at since more of them parked
	takes map[string]*taking // by queue, the one that has no answer yet, or the next one

	busy sync.Mutex // one takes tasks, or gives them back

	mu    sync.Mutex
	taken []handed        // in the order in which they were taken
	last  <-chan struct{} // closed when the last of them has asked for its permits
}

// handed is a task to hand to asynq.
type handed struct {
	message any
	a       *attempt
}

const (
	// held is how long a dequeue waits for a position at most, for all queues of a server
	// together: asynq checks in between whether it is to shut down.
	held = time.Second
	// takenMost is how many tasks one call takes at most, unless more called ones were seen.
	takenMost = 32
	// takeFailed is how long a queue rests after an error.
	takeFailed = 100 * time.Millisecond
	// endSortTimeout is how long a server that stops tries to leave its queues to others to sort. It is
	// no loss if it cannot: they do so soon in any case.
	endSortTimeout = 100 * time.Millisecond
)

// next is asynq's dequeue. Tasks that were taken before come first, whichever queue asynq asks
// for: the message says which queue it is from.
func (in *intake) next(ctx context.Context, call line.Call) *redis.Cmd {
	none := redis.NewCmdResult(nil, redis.Nil)
	if t, ok := in.pop(); ok {
		return redis.NewCmdResult(t.message, nil)
	}
	in.busy.Lock()
	defer in.busy.Unlock()
	g := in.l.gate
	first, ok := g.admit(call.Queue, min(held/time.Duration(max(len(in.l.weights), 1)), in.soonest()))
	if !ok {
		return none
	}
	queue := first.queue // perhaps another one, whose turn it is
	began := time.Now()
	least, most := 0, takenMost
	this := in.taking(queue)
	if in.sorts[queue] > 0 && this.asked == 0 {
		if least, most = in.sortPending(ctx, queue, began); most == 0 {
			first.leave()
			return none
		}
	}
	most = max(most, least, this.asked)
	positions := append([]*position{first}, g.more(queue, max(min(in.most, most), least, this.asked)-1, most-1)...)
	asked := len(positions)
	tasks, err := in.l.lines.TakeAs(ctx, line.Taker{ID: in.id, No: this.no}, queue, call.LeaseEnds, asked, in.l.rules.orders)
	standings := in.l.order(ctx, queue, tasks)
	if this.answered(asked, err); len(tasks) > asked { // those of a take whose answer was lost
		in.leave(ctx, queue, tasks[asked:])
		tasks = tasks[:asked]
	}
	came := len(tasks)
	if err == nil && came > 0 {
		called, early := 0, 0
		if tasks, called, early = in.sortTaken(ctx, queue, tasks, began); in.sorts[queue] == 0 {
			in.sorts[queue] = sortNext(sortMost, came, called, early, false, 0, time.Since(began))
		}
	}
	in.most = takeNext(asked, came, g.size.slots)
	switch {
	case err != nil:
		g.leave(queue, takeFailed)
	case came == 0:
		g.empty(queue, began)
	}
	for i, t := range tasks {
		in.put(queue, t, call.LeaseEnds, standings[t.ID], positions[i], began)
	}
	for _, s := range positions[min(len(tasks), len(positions)):] {
		s.leave() // for queues that are not empty, as far as is known by now
	}
	if err != nil {
		return redis.NewCmdResult(nil, err)
	}
	if t, ok := in.pop(); ok {
		return redis.NewCmdResult(t.message, nil)
	}
	return none
}

// taking is a take from a queue. If it has no answer, it is made again: Redis may have taken tasks by it.
type taking struct {
	no    int64
	asked int // for how many tasks it was made, if it has no answer
}

func (in *intake) taking(queue string) *taking {
	if in.takes[queue] == nil {
		in.takes[queue] = &taking{no: 1}
	}
	return in.takes[queue]
}

func (t *taking) answered(asked int, err error) {
	if t.asked = max(t.asked, asked); err == nil {
		t.no, t.asked = t.no+1, 0
	}
}

// leave puts tasks back for which there is no capacity any more.
func (in *intake) leave(ctx context.Context, queue string, tasks []line.Taken) {
	ids, parkings := make([]string, len(tasks)), make([]line.Parking, len(tasks))
	for i, t := range tasks {
		ids[i] = t.ID
		parkings[i] = line.Parking{By: t.By, Since: t.Arrival(), Cost: t.Wait.Cost, Refused: refusedBefore(t), Line: t.Wait.Line, Untried: !t.Wait.State.Near()}
	}
	in.putBack(ctx, queue, ids, parkings)
}

// putBack puts tasks back at the head of their queue.
func (in *intake) putBack(ctx context.Context, queue string, ids []string, parkings []line.Parking) {
	if err := in.l.lines.GiveBackAll(ctx, queue, ids, parkings); err != nil {
		in.l.logger.Warn("cannot put jobs back to their queue; asynq does so when their leases are over", "queue", queue, "jobs", len(ids), "error", err)
	}
}

// takeNext is how many tasks to take after a take that asked for so many and got so many: twice
// as many while they keep coming, up to a quarter of the slots. If only a few come from time to
// time, more are left to other processes.
func takeNext(asked, came, slots int) int {
	if came < asked {
		return max(came/2, 1)
	}
	return min(2*asked, takenMost, max(slots/4, 1))
}

// put adds a task that was taken by a call that began then.
func (in *intake) put(queue string, t line.Taken, leaseEnds any, standing line.Standing, s *position, began time.Time) {
	a := &attempt{queue: queue, id: t.ID, by: t.By, wait: t.Wait, since: t.Arrival(), first: t.First, standing: standing, position: s, asked: make(chan struct{}),
		called: t.Wait.State == line.Called, came: time.Now()}
	a.last = a.came
	text, _ := t.Message.(string)
	m, err := line.ParseMessage(text)
	a.kept = err != nil || m.Retention > 0
	if ends, ok := leaseEnds.(int64); ok {
		a.leased = leaseEnd(ends)
	}
	a.wait.Refused = refusedBefore(t)
	if t.Waited() {
		a.earlier = max(time.Duration(t.At-a.since)*time.Microsecond, 0)
	}
	in.l.gate.arrived(queue, t.Wait.State, began)
	r := in.l.attempts.cameBack(a)
	s.came(t.Wait.State.Near(), r.since)
	if a.from = r.at.Add(line.Settled); a.from.After(a.came) {
		a.ask() // those behind it do not wait for it
		s.toCompete()
	}
	in.l.rooms.of(a).taken(a)
	in.l.attempts.put(a)
	in.l.caller.taken(a)
	in.mu.Lock()
	defer in.mu.Unlock()
	a.before, in.last = in.last, a.asked
	in.taken = append(in.taken, handed{t.Message, a})
}

// refusedBefore is when the API first refused a task, moved on by the time that it has waited in
// line since. It is forgotten when the task fails for another reason (failed.lua).
func refusedBefore(t line.Taken) int64 {
	if !t.Waited() {
		return t.Wait.Refused
	}
	return movedOn(t.Wait.Refused, t.Wait.InLine(t.At), t.At/1e6)
}

// pop returns the next task for asynq. One that went back to its queue just now, and was taken again,
// is left until asynq is done with the attempt before: its heartbeat knows attempts by their task.
func (in *intake) pop() (handed, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	now := time.Now()
	i := slices.IndexFunc(in.taken, func(t handed) bool { return !t.a.from.After(now) })
	if i < 0 {
		return handed{}, false
	}
	t := in.taken[i]
	in.taken = slices.Delete(in.taken, i, i+1)
	return t, true
}

// soonest is how long it is until asynq can have the first of the tasks that are taken.
func (in *intake) soonest() time.Duration {
	in.mu.Lock()
	defer in.mu.Unlock()
	wait := held
	for _, t := range in.taken {
		wait = min(wait, max(time.Until(t.a.from), 0))
	}
	return wait
}

// giveBack puts tasks that asynq did not get before it stopped back at the heads of their queues,
// and off the list of waiting tasks. A task that cannot be put back stays on the list: it has not
// begun, and asynq's recoverer brings it back without a failure. Then it leaves the queues to other
// processes to sort.
func (in *intake) giveBack(ctx context.Context) {
	in.busy.Lock() // asynq may not have stopped: somebody else may have called its Stop or Shutdown
	defer in.busy.Unlock()
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	in.mu.Lock()
	taken := in.taken
	in.taken = nil
	in.mu.Unlock()
	ids, parkings := map[string][]string{}, map[string][]line.Parking{}
	for _, t := range taken {
		ids[t.a.queue] = append(ids[t.a.queue], t.a.id)
		parkings[t.a.queue] = append(parkings[t.a.queue], t.a.untouched())
	}
	for queue := range ids {
		in.putBack(ctx, queue, ids[queue], parkings[queue])
	}
	for _, t := range taken {
		t.a.settle(line.Requeue)
		t.a.note()
		t.a.finish(false)
		t.a.position.leave()
		in.l.caller.answered(t.a)
		in.l.attempts.drop(t.a)
	}
	for queue, this := range in.takes {
		if this.asked > 0 { // Redis may have taken tasks by it
			leaseEnds := time.Now().Add(time.Minute).Unix()
			if tasks, err := in.l.lines.TakeAs(ctx, line.Taker{ID: in.id, No: this.no}, queue, leaseEnds, this.asked, in.l.rules.orders); err == nil && len(tasks) > 0 {
				in.leave(ctx, queue, tasks)
			}
		}
		if err := in.l.lines.ForgetTakes(ctx, in.id, queue); err != nil {
			in.l.logger.Debug("cannot forget a take; Redis does so soon", "queue", queue, "error", err)
		}
	}
	ctx, cancel = context.WithTimeout(ctx, endSortTimeout)
	defer cancel()
	for queue := range in.l.weights {
		if err := in.l.lines.EndSort(ctx, queue, in.l.throttle.ID()); err != nil {
			in.l.logger.Debug("cannot leave the queue to others to sort; they begin a little later", "queue", queue, "error", err)
		}
	}
}
