package throttle

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/oracle"
)

// permitUse is permits that a caller got, of each limit of a queue.
type permitUse struct {
	process *simulatedProcess
	limits  []*simulatedLimit
	ns      []int64
	at      time.Time
	handed  time.Time // when it was, if its caller stood still before it went on; else zero
	maybe   []int64   // and these, unless a release that failed gave them back; nil: none
	unused  bool      // and given back: Release
	none    bool      // nobody had any
	late    bool      // as the engine counts it, or another of its process did meanwhile
}

// caller asks in a loop, in one of the ways there are.
func (s *simulation) caller(ctx context.Context, p *simulatedProcess, random *rand.Rand) {
	lazy := []time.Duration{0, ms(1), ms(20), ms(300), 2 * time.Second}[random.IntN(5)]
	if s.crowd {
		lazy = 0
	}
	for pass(ctx, time.Duration(random.Int64N(int64(lazy)+int64(ms(1))))) {
		q := p.queues[random.IntN(len(p.queues))]
		ns, late := drawCosts(random, q), p.late()
		if got, r := s.ask(ctx, q, ns, random); got {
			use := permitUse{process: p, limits: q.limits, ns: ns, at: time.Now(), late: p.late() > late}
			if random.IntN(10) == 0 && q.group == nil && s.mayRelease(q.limits[0]) {
				use.unused = true
				_ = q.limiter.Release(ctx, ns[0])
			} else if r != nil && random.IntN(2) == 0 {
				use.ns, use.maybe = s.settle(ctx, r, ns, random)
			}
			s.usesMu.Lock()
			s.uses = append(s.uses, use)
			s.usesMu.Unlock()
		}
	}
}

// settle gives back some of what a caller had reserved and got, at once or later, perhaps when it
// no longer counts. It returns what the caller has used, and what it gave back to an error: that
// is back, or not.
func (s *simulation) settle(ctx context.Context, r *Reservation, ns []int64, random *rand.Rand) (used, maybe []int64) {
	pass(ctx, time.Duration(random.Int64N(int64([]time.Duration{ms(1), ms(50), 3 * time.Second}[random.IntN(3)]))))
	back, used := make([]int64, len(ns)), slices.Clone(ns)
	for i, n := range ns {
		back[i] = random.Int64N(n + 1)
		used[i] -= back[i]
	}
	if r.ReleaseEach(ctx, back...) != nil {
		return used, back
	}
	return used, nil
}

// mayRelease reports whether a release now cannot take off what others used: the permits still
// count when it arrives at Redis, and are not forgotten by then.
func (s *simulation) mayRelease(l *simulatedLimit) bool {
	return !l.resets && l.rate.Interval >= time.Minute
}

// drawCosts draws how many permits of each limit to ask for: sometimes all, or more.
func drawCosts(random *rand.Rand, q simulatedQueue) []int64 {
	ns := make([]int64, len(q.limits))
	for i, l := range q.limits {
		ns[i] = 1
		switch random.IntN(12) {
		case 0, 1:
			ns[i] = 1 + random.Int64N(min(l.rate.Permits, 5))
		case 2:
			ns[i] = 1 + random.Int64N(l.rate.Permits)
		case 3:
			if random.IntN(4) == 0 {
				ns[i] = l.rate.Permits + random.Int64N(2)
			}
		}
	}
	return ns
}

// ask asks once, and reports whether the caller got the permits, and by which reservation if it
// made one.
func (s *simulation) ask(ctx context.Context, q simulatedQueue, ns []int64, random *rand.Rand) (bool, *Reservation) {
	wait := time.Duration(random.Int64N(int64([]time.Duration{ms(1), ms(50), time.Second, 20 * time.Second, 40 * 24 * time.Hour}[random.IntN(5)])))
	acquire, reserve := q.ask(ns)
	switch random.IntN(8) {
	case 0, 1, 2:
		return acquire(ctx) == nil, nil
	case 3:
		ctx, cancel := context.WithTimeout(ctx, wait)
		defer cancel()
		return acquire(ctx) == nil, nil
	case 4: // somebody else ends the wait
		ctx, cancel := context.WithCancel(ctx)
		stop := time.AfterFunc(wait, cancel)
		defer stop.Stop()
		defer cancel()
		return acquire(ctx) == nil, nil
	case 5:
		r, err := reserve(ctx, 0)
		return err == nil && r.OK() && r.Wait(ctx) == nil, r
	case 6:
		r, err := reserve(ctx, wait)
		return err == nil && r.OK() && r.Wait(ctx) == nil, r
	}
	r, err := reserve(ctx, wait)
	if err != nil || !r.OK() {
		return false, nil
	}
	if !pass(ctx, time.Duration(random.Int64N(int64(3*time.Second)))) || random.IntN(2) == 0 {
		r.Cancel()
		return false, nil
	}
	return r.Wait(ctx) == nil, r
}

// ask is how to ask a limiter or a group for ns.
func (q simulatedQueue) ask(ns []int64) (acquire func(context.Context) error, reserve func(context.Context, time.Duration) (*Reservation, error)) {
	if q.group == nil {
		return func(ctx context.Context) error { return q.limiter.Acquire(ctx, ns[0]) },
			func(ctx context.Context, d time.Duration) (*Reservation, error) {
				return q.limiter.Reserve(ctx, ns[0], d)
			}
	}
	return func(ctx context.Context) error { return q.group.AcquireEach(ctx, ns...) },
		func(ctx context.Context, d time.Duration) (*Reservation, error) {
			own := slices.Clone(ns)
			defer func() { clear(own) }() // the slice is its caller's
			return q.group.ReserveEach(ctx, d, own...)
		}
}

// operator changes limits now and then, from one of the processes.
func (s *simulation) operator(ctx context.Context, random *rand.Rand) {
	every := []time.Duration{ms(300), 3 * time.Second, time.Hour}[random.IntN(3)]
	for pass(ctx, time.Duration(random.Int64N(int64(every)))) {
		p, sl := s.procs[random.IntN(len(s.procs))], s.limits[random.IntN(len(s.limits))]
		l, err := p.client.LimiterWithRate(sl.name, sl.rate)
		check(s, err)
		changed := sl.rate
		if random.IntN(3) > 0 {
			changed = drawRate(random)
		} else {
			changed.Permits = max(1, changed.Permits/2)
		}
		if !sl.resets {
			changed.Type = sl.rate.Type // a change of type forgets
			if changed.KeepAlive = sl.rate.KeepAlive; changed.KeepAlive > 0 {
				changed.KeepAlive = max(changed.KeepAlive, changed.Interval)
			}
		}
		d := time.Duration(random.Int64N(int64(3 * time.Second)))
		what := random.IntN(14)
		if s.steps {
			if p.client.Stats().Calls == 0 {
				continue // a client that knows nothing of the time takes what was used for reservations
			}
			what = 4 + what%4 // pauses and their ends: then only what callers see is judged
		}
		switch {
		case what < 4:
			_, err = l.UpdateRate(ctx, changed)
		case what < 7:
			err = l.Pause(ctx, d)
		case what < 8:
			err = l.Resume(ctx)
		case what < 9:
			_, err = l.TrySetRate(ctx, changed)
		case what < 10:
			_, err = l.Inspect(ctx)
		case !sl.resets:
		case what < 11:
			err = l.SetRate(ctx, changed)
		case what < 12:
			_, err = l.Delete(ctx)
		case what < 13:
			_, err = l.Expire(ctx, d+ms(1))
		default:
			_, err = l.ClearExpire(ctx)
		}
		if errors.Is(err, ErrInvalidRate) || errors.Is(err, ErrWrongType) {
			s.Errorf("%v", err)
		}
	}
}

// settled is how long after a change of a rate an earlier grant may still be handed out: the
// furthest that reservations stay, and a slow call.
const settled = 1500 * time.Millisecond

// judgeUses checks the times at which callers got permits: no window of Interval above the limit,
// from one change of the rate to the next. Permits that the engine counts as late, because Redis
// is too far for the guard, may be close together, and so may those of a limit without guard.
func (s *simulation) judgeUses() {
	slices.SortFunc(s.uses, func(a, b permitUse) int { return a.at.Compare(b.at) })
	for _, l := range s.limits {
		for i, c := range l.changes {
			from, to := c.at, int64(1)<<62
			if i > 0 {
				from += settled.Microseconds()
			}
			if i+1 < len(l.changes) {
				to = l.changes[i+1].at
			}
			if c.limit.Guard == 0 || c.limit.Permits == 0 || from >= to {
				continue
			}
			if s.steps && c.limit.Calendar {
				continue // its windows are those of Redis's clock
			}
			for who, log := range s.usesOf(l, c.limit.PerClient, from, to) {
				s.count["windows of callers"] += len(log)
				if w, over := c.limit.Excess(log, c.limit.Interval); over {
					s.broken("exact", "callers had %d permits of %s %s from %v to %v after the beginning: %+v",
						w.Permits, l.name, who, micros(w.From-s.begin.UnixMicro()), micros(w.End-s.begin.UnixMicro()), c.limit)
				}
			}
		}
	}
}

// usesOf are the permits of a limit that callers used, by client if each has its own.
func (s *simulation) usesOf(l *simulatedLimit, perClient bool, from, to int64) map[string]oracle.Log {
	logs := make(map[string]oracle.Log)
	for _, u := range s.uses {
		i := slices.Index(u.limits, l)
		at := u.at.UnixMicro()
		if i < 0 || u.unused || at < from || at >= to || u.late {
			continue
		}
		if c := u.process.crashed; !c.IsZero() && u.at.After(c) {
			continue
		}
		who := ""
		if perClient {
			who = u.process.name
		}
		logs[who] = append(logs[who], oracle.Entry{At: at, Permits: u.ns[i]})
	}
	return logs
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
