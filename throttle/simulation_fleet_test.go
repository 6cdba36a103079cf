package throttle

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/oracle"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// mostCalls is after how many script calls a fleet ends.
func (s *simulation) mostCalls() int {
	if s.crowd {
		return 1000 // each line's first ones are its own
	}
	return 250
}

// simulatedLimit is one limiter of a fleet. Its rate is the first one.
type simulatedLimit struct {
	name    string
	rate    Rate
	filled  int        // entries that its log had at first
	fill    oracle.Log // these
	crowded bool       // its log was in buckets
	resets  bool       // its usage is forgotten now and then, so nobody releases its permits

	// Guarded by the simulation's mutex:
	there   bool // a script has left it there
	gone    bool // it has not existed since, or was deleted or given an expiry
	changes []rateChange
	pauses  []pauseChange
	stood   int64 // permits of reservations that stayed at a change: they count, although their owners may ask again
	granted int64 // permits that callers were granted, without those that went back, or that a change dropped; not those taken in advance
	lost    int64 // of these, what callers did not have when the limit was changed: they may have asked again
	// uncounted says that granted lacks what a call granted that could not be judged.
	uncounted bool
}

// rateChange is a limit as it was from a time of fake time on, in us.
type rateChange struct {
	at    int64
	limit oracle.Limit
}

// simulatedQueue is what callers of a process ask: a limiter, or a group.
type simulatedQueue struct {
	limits  []*simulatedLimit
	limiter *Limiter // if there is one limit
	group   *Group   // if there are several
}

var simulatedIntervals = []time.Duration{
	ms(1), ms(2), ms(5), ms(10), ms(25), ms(100), ms(250), ms(500), time.Second, time.Second, 2 * time.Second, 4 * time.Second, 10 * time.Second,
	time.Minute, 5 * time.Minute, time.Hour, 24 * time.Hour, 24 * time.Hour, 30 * 24 * time.Hour, 30 * 24 * time.Hour,
}

// build draws the limits, the processes and what they ask.
func (s *simulation) build() {
	r := s.random
	s.steps = r.IntN(8) == 0
	s.length = time.Duration(5+r.IntN(40)) * time.Second
	limits := 1 + r.IntN(5)
	if s.crowd = r.IntN(8) == 0; s.crowd {
		limits = 6 + r.IntN(15)
	}
	for i := range limits {
		s.addLimit(fmt.Sprintf("limit%d", i))
	}
	near := r.IntN(2) == 0 || s.steps || s.crowd || s.ample
	faults := []int{0, 0, 8, 20, 60}[r.IntN(5)]
	for i := range 1 + r.IntN(4) {
		p := &simulatedProcess{s: s, no: i, name: fmt.Sprintf("process%d", i), faults: faults, hears: r.IntN(2) == 0, shares: s.crowd || s.steps, callers: 1 + r.IntN(12)}
		if s.crowd {
			p.callers = 20 + r.IntN(30)
		}
		if s.ample {
			p.callers = 5 + r.IntN(10)
		}
		p.random = rand.New(rand.NewPCG(s.seed, uint64(1<<32+i)))
		p.way = time.Duration(50*math.Pow(5000, r.Float64())) * time.Microsecond // 0.05 to 250 ms
		if near {
			p.way = time.Duration(50+r.IntN(400)) * time.Microsecond
		}
		var err error
		if p.hears {
			p.client, err = New(hearing{p}, Options{ID: p.name})
		} else {
			p.client, err = New(p, Options{ID: p.name})
		}
		check(s, err)
		for range 1 + r.IntN(3) {
			p.queues = append(p.queues, s.drawQueue(p))
		}
		if s.crowd {
			for _, l := range s.limits {
				p.queues = append(p.queues, s.queueOf(p, l))
			}
		}
		s.procs = append(s.procs, p)
	}
}

func (s *simulation) drawQueue(p *simulatedProcess) simulatedQueue {
	var ls []*simulatedLimit
	for _, i := range s.random.Perm(len(s.limits))[:1+s.random.IntN(min(4, len(s.limits)))] {
		ls = append(ls, s.limits[i])
	}
	return s.queueOf(p, ls...)
}

// queueOf is the queue for these limits.
func (s *simulation) queueOf(p *simulatedProcess, limits ...*simulatedLimit) simulatedQueue {
	q := simulatedQueue{limits: limits}
	var ls []*Limiter
	for _, l := range limits {
		limiter, err := p.client.LimiterWithRate(l.name, l.rate)
		check(s, err)
		ls = append(ls, limiter)
	}
	if q.limiter = ls[0]; len(ls) > 1 {
		var err error
		q.group, err = p.client.Group(ls...)
		check(s, err)
	}
	return q
}

// drawRate draws a rate: most limits bind, some never do.
func drawRate(r *rand.Rand) Rate {
	interval := simulatedIntervals[r.IntN(len(simulatedIntervals))]
	rate := Rate{
		Interval: interval,
		Permits:  1 + r.Int64N(30),
		Smooth:   r.IntN(6) == 0,
		Guard:    []time.Duration{0, 0, 0, 0, -1, interval / 4, time.Microsecond}[r.IntN(7)],
	}
	switch r.IntN(10) {
	case 0, 1:
		rate.Permits = 1 + r.Int64N(1000)
	case 2:
		rate.Permits = int64(math.Pow(10, 7*r.Float64()))
	}
	if r.IntN(6) == 0 {
		rate.Type = PerClient
	}
	if r.IntN(6) == 0 {
		rate.Window = Calendar
		rate.Offset = []time.Duration{0, interval / 3, interval - time.Microsecond}[r.IntN(3)].Truncate(time.Microsecond)
	}
	if r.IntN(6) == 0 {
		rate.KeepAlive = max(interval*time.Duration(1+r.IntN(3)), time.Second)
	}
	return rate
}

// addLimit draws a limit, and the log that a busy fleet would have left.
func (s *simulation) addLimit(name string) {
	r := s.random
	l := &simulatedLimit{name: name, rate: drawRate(r), resets: r.IntN(3) == 0}
	if s.crowd && r.IntN(3) > 0 { // mostly enough for all: calls are shared for such limits
		l.rate = Rate{Permits: 50 + r.Int64N(3000), Interval: simulatedIntervals[r.IntN(len(simulatedIntervals))]}
	}
	if s.ample && r.IntN(6) > 0 { // processes take permits in advance
		l.rate = Rate{Permits: 2000 + r.Int64N(8000), Interval: time.Second, Guard: ms(250)}
	}
	if s.steps { // then only what callers see is judged: limits that bind, and that nobody changes
		l.rate = Rate{Permits: 1 + r.Int64N(12), Interval: []time.Duration{ms(250), time.Second, 2 * time.Second}[r.IntN(3)], Smooth: r.IntN(4) == 0}
	}
	fill := r.IntN(5) < 2 && l.rate.Interval >= 250*time.Millisecond && l.rate.Type == Overall
	if fill && r.IntN(2) == 0 {
		l.rate.Permits = max(l.rate.Permits, 300+r.Int64N(400))
	}
	s.set(l)
	if fill {
		s.fillLog(l, true)
	}
}

// set creates the limit.
func (s *simulation) set(l *simulatedLimit) {
	s.limits = append(s.limits, l)
	setter, err := New(s.rdb, Options{ID: "setter"})
	check(s, err)
	defer setter.Close()
	limiter, err := setter.Limiter(l.name)
	check(s, err)
	check(s, limiter.SetRate(s.Context(), l.rate))
	l.changes = []rateChange{{s.begin.UnixMicro(), oracleLimit(l.rate)}}
}

// fillLog writes entries of the past, so that most of the limit is used; with soon, half of the
// entries expire while the fleet works.
func (s *simulation) fillLog(l *simulatedLimit, soon bool) {
	keys := script.KeysOf(l.name, "")
	r, limit := s.random, oracleLimit(l.rate)
	now := time.Now().UnixMicro()
	free := min(r.Int64N(4)*r.Int64N(20), l.rate.Permits)
	var log oracle.Log
	for left, n := l.rate.Permits-free, 100+r.Int64N(500); left > 0 && n > 0; n-- {
		x := max(1, left/n)
		age := r.Int64N(limit.Span())
		if soon && r.IntN(2) == 0 {
			age = limit.Span() - r.Int64N(min(limit.Span(), s.length.Microseconds()))
		}
		if at := now - age; at > limit.Cutoff(now) {
			log, left = log.With(at, x), left-x
		}
	}
	for _, e := range log {
		_, err := s.redis.ZAdd(keys[2], float64(e.At)/1000, ownMember(e.At, e.Permits))
		check(s, err)
	}
	s.redis.Del(keys[1])
	l.filled, l.fill = len(log), log
}

// oracleLimit is a rate as the oracle knows it.
func oracleLimit(r Rate) oracle.Limit {
	return oracle.Limit{
		Permits: r.Permits, Interval: r.Interval.Microseconds(), Guard: r.guard().Microseconds(),
		PerClient: r.Type == PerClient, Smooth: r.Smooth, Calendar: r.Window == Calendar, Offset: r.Offset.Microseconds(),
	}
}
