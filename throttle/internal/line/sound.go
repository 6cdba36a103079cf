package line

import "fmt"

// Sound returns what contradicts itself in the line, or nil. It is for tests.
func (l *Line) Sound() error {
	for _, ws := range [][]*Waiter{l.front, l.waiting} {
		for _, w := range ws {
			if w.state != queued || w.index >= 0 {
				return fmt.Errorf("waiter %d waits in state %d, with a grant: %v", w.no, w.state, w.index >= 0)
			}
		}
	}
	reserved := make([]int64, len(l.config))
	for i, w := range l.holders {
		if w.index != i || w.state != granted && w.state != unsure {
			return fmt.Errorf("waiter %d has a grant in state %d, at %d, want %d", w.no, w.state, w.index, i)
		}
		for m, n := range w.ns {
			reserved[m] += n
		}
	}
	for _, h := range l.comeback.held {
		for m := range reserved {
			reserved[m] += h.n
		}
	}
	for m, n := range reserved {
		if n != l.reserved[m] {
			return fmt.Errorf("%d permits of member %d are reserved, and %d are counted", n, m, l.reserved[m])
		}
	}
	return nil
}
