package driver

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

const (
	// maxShared bounds the requests that share a call: Redis serves nobody else
	// meanwhile, some 5 us for each, and more save little.
	maxShared = 64
	// maxFlights is how many calls are under way before others wait for each
	// other: one that Redis serves, and one on its way.
	maxFlights = 2
	// flightLate is how long after a call the next goes at least that goes before
	// one has come back: Redis may be far, or busy, and a connection lost. It waits
	// for one part in paceShare of what a call takes at present, as long as it has
	// room, and not for longer than paceTo: so the calls under way remain few, and full.
	flightLate = time.Millisecond
	paceShare  = 4
	paceTo     = 10 * time.Millisecond
	// sharedPatience is how long the first attempt may take: a connection that is lost
	// is not to keep so many.
	sharedPatience = 100 * time.Millisecond
	// shareAgainFrom and shareAgainTo are how long a call that failed is left alone.
	shareAgainFrom, shareAgainTo = 5 * time.Millisecond, 500 * time.Millisecond
	// alone is how long nothing is shared after a shared call was refused.
	alone = time.Minute
)

// sharing has the lines of a client share calls. What a call costs by itself is more
// than what a grant costs in it, so while calls are under way those that may share
// gather, and go in the next together. One that meets no other goes alone, at once;
// and a call that does not come back keeps nobody who is not in it.
type sharing struct {
	c    *Client
	able bool // all limiters are on one server, whatever their names

	mu       sync.Mutex
	flights  int           // calls under way
	departed line.Local    // when the latest of them was made
	took     time.Duration // by the latest that came back
	waiting  []part
	timer    *time.Timer
	no       uint64
	keys     []replyKey // of those that no call has now
	refused  line.Local
}

// replyKey is a key for replies, and until when a call may be served that had it.
type replyKey struct {
	key   string
	until line.Local
}

// part is one line's part of a call.
type part struct {
	q     *queue
	call  *line.Call
	short *script.Short
}

// sharesCalls reports whether the limiters of rdb are on one server whatever their
// names, as far as can be told.
func sharesCalls(rdb redis.Scripter) bool {
	s, ok := rdb.(interface{ SharesCalls() bool })
	if ok {
		return s.SharesCalls()
	}
	_, ok = rdb.(*redis.Client)
	return ok
}

// join has a call go with those of other lines, if it may and meets any: then its
// queue is told what became of it. Else the caller makes it, and calls landed.
func (s *sharing) join(q *queue, call *line.Call) (shared bool, landed func()) {
	short := call.Shares()
	if !s.able || short == nil {
		return false, func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.now()
	if len(s.waiting) == 0 && s.flights < maxFlights || s.refused != 0 && now.Sub(s.refused) < alone {
		s.flights++
		s.departed = now
		return false, func() { s.landed(now) }
	}
	s.waiting = append(s.waiting, part{q, call, short})
	s.depart(now)
	return true, nil
}

// landed takes up that a call has come back which was made then: those who wait may
// go in the next.
func (s *sharing) landed(since line.Local) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.now()
	s.flights--
	s.took = now.Sub(since)
	s.depart(now)
}

// pace is how long after the call before the next goes though too many are under way.
func (s *sharing) pace() time.Duration {
	if len(s.waiting) >= maxShared {
		return flightLate
	}
	return max(flightLate, min(s.took/paceShare, paceTo))
}

// depart has those who wait go as soon as they may. The mutex is held.
func (s *sharing) depart(now line.Local) {
	for len(s.waiting) > 0 && (s.flights < maxFlights || now.Sub(s.departed) >= s.pace()) {
		n := min(len(s.waiting), maxShared)
		parts := s.waiting[:n:n]
		if s.waiting = s.waiting[n:]; len(s.waiting) == 0 {
			s.waiting = nil
		}
		s.flights++
		s.departed = now
		s.no++
		no, key := s.no, s.key(parts[0].q.members[0])
		s.c.wg.Go(func() { s.fly(key, no, parts, now) })
	}
	if len(s.waiting) == 0 {
		return
	}
	d := s.departed.Add(s.pace()).Sub(now)
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.overdue)
	} else {
		s.timer.Reset(d)
	}
}

// overdue has those who wait go without the calls that do not come back.
func (s *sharing) overdue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.depart(s.c.now())
}

// key is one for replies that no other call has now.
func (s *sharing) key(m Member) replyKey {
	if n := len(s.keys); n > 0 {
		key := s.keys[n-1]
		s.keys = s.keys[:n-1]
		return key
	}
	return replyKey{key: s.c.replyKey(m)}
}

// fly makes one call for several lines, until it is answered: it is one call however
// often it is made, for as long as its reply is kept. After that, or where Redis
// refuses it, each goes its own long way.
func (s *sharing) fly(key replyKey, no uint64, parts []part, since line.Local) {
	c := s.c
	shorts := make([]*script.Short, len(parts))
	for i, p := range parts {
		shorts[i] = p.short
	}
	now := c.now()
	shared := script.Share(key.key, no, line.ServedFor, max(line.LeastServed, key.until.Sub(now)), shorts)
	key.until = max(key.until, now.Add(shared.Within))
	replies, sent, lost, err := s.call(shared, sharedPatience)
	patience, first := sharedPatience, sent
	for again := shareAgainFrom; err != nil && c.ctx.Err() == nil && script.Transient(err) && c.now().Sub(first) < line.ServedFor; again = min(2*again, shareAgainTo) {
		trouble := err
		if lost {
			trouble = nil // Redis may yet answer those who have the time
		}
		for _, p := range parts {
			p.q.troubled(p.call, trouble)
		}
		ctx, cancel := context.WithTimeout(c.ctx, again/2+rand.N(again/2))
		<-ctx.Done()
		cancel()
		patience *= 2
		replies, sent, lost, err = s.call(shared, patience)
	}
	over := err != nil && c.ctx.Err() != nil
	s.mu.Lock()
	switch {
	case over:
		err = line.ErrClosed
	case err != nil:
		s.refused = c.now() // maybe for the key, which nobody has again
		replies, err = shared.Declined(), nil
	default:
		s.keys = append(s.keys, key)
	}
	s.mu.Unlock()
	s.landed(since)
	for i, p := range parts {
		r := line.Reply{Err: err, Sent: sent, Shared: true, Final: over}
		if err == nil {
			r.Value = replies[i]
		}
		p.q.answered(p.call, r)
	}
}

// call makes a shared call, and waits for it no longer than patience, where Redis
// heeds that: it may be lost with its connection. That is no more than a guess (lost):
// Redis may stand still.
func (s *sharing) call(shared *script.Shared, patience time.Duration) (replies []any, sent line.Local, lost bool, err error) {
	ctx, cancel := s.c.ctx, context.CancelFunc(func() {})
	if s.c.heeds {
		ctx, cancel = context.WithTimeout(ctx, patience)
	}
	defer cancel()
	value, sent, err := s.c.call(ctx, script.Many, shared.Keys, shared.Args)
	if err == nil {
		replies, err = shared.Decode(value)
	}
	var timeout interface{ Timeout() bool }
	lost = ctx.Err() != nil && errors.As(err, &timeout) && timeout.Timeout()
	return replies, sent, lost, err
}

// troubled takes up that a call failed, or was not answered in time if err is nil,
// and is made again.
func (q *queue) troubled(call *line.Call, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.step(line.Event{Kind: line.Troubled, Call: call, Answer: line.Reply{Err: err}})
}
