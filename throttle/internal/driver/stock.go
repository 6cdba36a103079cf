package driver

import (
	"sync/atomic"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
)

// stock is what a line lends of the permits that it has in advance. A caller that asks for
// one permit of each member then needs only an atomic operation. The stock is taken back for
// each step, and lent again after it: nobody draws while the line decides.
type stock struct {
	left  atomic.Int64
	until atomic.Int64 // a line.Local
	lent  int64        // guarded by the mutex of the queue
}

// draw takes one permit of each member, if any are lent at this time.
func (s *stock) draw(now line.Local) bool {
	if int64(now) >= s.until.Load() {
		return false
	}
	for n := s.left.Load(); n > 0; n = s.left.Load() {
		if s.left.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}

// back ends the loan, and returns how many were drawn.
func (s *stock) back() (drawn int64) {
	if s.lent == 0 {
		return 0
	}
	drawn = s.lent - s.left.Swap(0)
	s.lent = 0
	return drawn
}

// lend lets n permits of each member be drawn until then.
func (s *stock) lend(n int64, until line.Local) {
	if n == 0 {
		return
	}
	s.lent = n
	s.until.Store(int64(until))
	s.left.Store(n)
}
