package driver

import (
	"context"
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
	// maxFlights is how many such calls are under way at a time: one that Redis
	// serves, and one on its way.
	maxFlights = 2
	// shareAgainFrom and shareAgainTo are how long a call that failed is left alone.
	shareAgainFrom, shareAgainTo = 5 * time.Millisecond, 500 * time.Millisecond
)

// sharing has the lines of a client share calls. What a call costs by itself is more
// than what a grant costs in it, so while calls are under way those that may share
// gather, and go in the next together. One that meets no other goes alone, at once.
type sharing struct {
	c    *Client
	able bool // all limiters are on one server, whatever their names

	mu      sync.Mutex
	flights int
	waiting []*part
	no      uint64
}

// part is one line's part of a call.
type part struct {
	q      *queue
	call   *line.Call
	short  *script.Short
	answer chan line.Reply // one
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

// join returns a part of a call that somebody else makes; or nil, and then the
// caller makes its own, and then calls landed.
func (s *sharing) join(q *queue, call *line.Call) *part {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flights < maxFlights {
		s.flights++
		return nil
	}
	p := &part{q: q, call: call, short: call.Shares(), answer: make(chan line.Reply, 1)}
	s.waiting = append(s.waiting, p)
	return p
}

// landed takes up that a call has come back: those who wait go in the next.
func (s *sharing) landed() {
	if parts := s.next(); len(parts) > 0 {
		s.c.wg.Go(func() {
			for ; len(parts) > 0; parts = s.next() {
				s.fly(parts)
			}
		})
	}
}

// next are those who share the next call; none, if there is nothing to do.
func (s *sharing) next() []*part {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := min(len(s.waiting), maxShared)
	if n == 0 {
		s.flights--
		return nil
	}
	parts := s.waiting[:n:n]
	s.waiting = s.waiting[n:]
	if len(s.waiting) == 0 {
		s.waiting = nil
	}
	return parts
}

// fly makes one call for several lines, until it is answered: it is one call however
// often it is made, for as long as its reply is kept.
func (s *sharing) fly(parts []*part) {
	c := s.c
	s.mu.Lock()
	s.no++
	no := s.no
	s.mu.Unlock()
	shorts := make([]*script.Short, len(parts))
	for i, p := range parts {
		shorts[i] = p.short
	}
	shared := script.Share(c.Nonce, no, line.ServedFor, shorts)
	for again := shareAgainFrom; ; again = min(2*again, shareAgainTo) {
		value, sent, err := c.call(c.ctx, script.Many, shared.Keys, shared.Args)
		var replies []any
		if err == nil {
			replies, err = shared.Decode(value)
		}
		if over := c.ctx.Err() != nil; err == nil || over || !script.Transient(err) {
			if over && err != nil {
				err = line.ErrClosed
			}
			for i, p := range parts {
				r := line.Reply{Err: err, Sent: sent, Final: over}
				if err == nil {
					r.Value = replies[i]
				}
				p.answer <- r
			}
			return
		}
		for _, p := range parts {
			p.q.troubled(p.call, err)
		}
		ctx, cancel := context.WithTimeout(c.ctx, again/2+rand.N(again/2))
		<-ctx.Done()
		cancel()
	}
}

// troubled takes up that a call failed, and is made again.
func (q *queue) troubled(call *line.Call, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.step(line.Event{Kind: line.Troubled, Call: call, Answer: line.Reply{Err: err}})
}
