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
	// maxShared bounds how many requests share a call: Redis serves nobody else meanwhile,
	// for some 5 us per request, and more requests save little.
	maxShared = 64
	// maxFlights is how many calls are under way before others wait for each other: one that
	// Redis serves, and one that is on its way.
	maxFlights = 2
	// flightLate is how long after a call the next one goes at the earliest if none has come
	// back: Redis may be far, or busy, and a connection may be lost. As long as the next call
	// has room, it waits for one part in paceShare of what a call takes at present, but no
	// longer than paceTo. So the calls under way remain few, and full.
	flightLate = time.Millisecond
	paceShare  = 4
	paceTo     = 10 * time.Millisecond
	// sharedPatience is how long the first attempt may take: a lost connection must not hold
	// up so many.
	sharedPatience = 100 * time.Millisecond
	// shareAgainFrom and shareAgainTo bound how long a failed call waits until it is made
	// again.
	shareAgainFrom, shareAgainTo = 5 * time.Millisecond, 500 * time.Millisecond
	// alone is how long nothing is shared after a shared call was refused.
	alone = time.Minute
)

// sharing lets the lines of a client share calls. A call costs more than a grant in it. So
// while calls are under way, those that may share gather, and go together in the next. A call
// that finds no other goes alone, at once. A call that does not come back holds up nobody who
// is not in it.
type sharing struct {
	c    *Client
	able bool // all limiters are on one server, whatever their names

	mu       sync.Mutex
	flights  int           // calls under way
	departed line.Local    // when the latest of them was made
	took     time.Duration // how long the latest that came back took
	waiting  []part
	timer    *time.Timer
	no       uint64
	keys     []replyKey // no call has them now
	refused  line.Local
}

// replyKey is a key for replies, and until when a call that had it may be served.
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

// sharesCalls reports whether the limiters of rdb are on one server whatever their names, as
// far as is known.
func sharesCalls(rdb redis.Scripter) bool {
	s, ok := rdb.(interface{ SharesCalls() bool })
	if ok {
		return s.SharesCalls()
	}
	_, ok = rdb.(*redis.Client)
	return ok
}

// join lets a call go together with those of other lines, if it may and there are any
// (shared). Its queue is then told the result. Otherwise the caller makes the call, and calls
// landed afterwards.
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

// landed records that a call has come back that was made at the time since: those who wait
// may go in the next.
func (s *sharing) landed(since line.Local) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.c.now()
	s.flights--
	s.took = now.Sub(since)
	s.depart(now)
}

// pace is how long after the last call the next one goes although too many are under way.
func (s *sharing) pace() time.Duration {
	if len(s.waiting) >= maxShared {
		return flightLate
	}
	return max(flightLate, min(s.took/paceShare, paceTo))
}

// depart sends those who wait as soon as they may go. The mutex is held.
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

// overdue lets those who wait go although some calls have not come back.
func (s *sharing) overdue() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.depart(s.c.now())
}

// key returns a key for replies that no other call has now.
func (s *sharing) key(m Member) replyKey {
	if n := len(s.keys); n > 0 {
		key := s.keys[n-1]
		s.keys = s.keys[:n-1]
		return key
	}
	return replyKey{key: s.c.replyKey(m)}
}

// fly makes one call for several lines, until it is answered. It counts as one call however
// often it is made, as long as its reply is kept. After that, or if Redis refuses it, each
// line goes the long way on its own.
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
			trouble = nil // Redis may still answer those who have the time
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
		s.refused = c.now() // maybe because of the key, which nobody uses again
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

// call makes a shared call, and waits for it no longer than patience if the Redis client
// heeds that: the call may be lost with its connection. That is only a guess (lost), because
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

// troubled records that a call failed, or was not answered in time if err is nil, and is made
// again.
func (q *queue) troubled(call *line.Call, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.step(line.Event{Kind: line.Troubled, Call: call, Answer: line.Reply{Err: err}})
}
