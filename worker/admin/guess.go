package admin

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// guessEvery is how often a wrong token is answered.
	guessEvery = 100 * time.Millisecond
	// maxGuessing is how many may wait for that: 2 s at most.
	maxGuessing = 20
	// toldEvery is how often wrong tokens are logged.
	toldEvery = time.Second
)

// guesses slows down who sends wrong tokens, and tells of them. It slows nobody
// else, and forgets within the longest wait.
type guesses struct {
	logger *slog.Logger

	mu     sync.Mutex
	next   time.Time // when the last that waits is answered
	told   time.Time // when it was last logged
	untold int       // how many came since
}

// wrong tells of a wrong token, and returns when to answer it. It is false if as
// many wait as may: that one is answered at once, and delays no other.
func (g *guesses) wrong(now time.Time, from, path string) (time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tell(now, from, path)
	if g.next.Before(now) {
		g.next = now
	}
	at := g.next.Add(guessEvery)
	if at.Sub(now) > maxGuessing*guessEvery {
		return time.Time{}, false
	}
	g.next = at
	return at, true
}

func (g *guesses) tell(now time.Time, from, path string) {
	if now.Sub(g.told) < toldEvery {
		g.untold++
		return
	}
	g.logger.Warn("wrong token for a change", "from", from, "path", path, "not_logged_before", g.untold)
	g.told, g.untold = now, 0
}

// waitUntil waits until then, or until ctx ends.
func waitUntil(ctx context.Context, then time.Time) {
	timer := time.NewTimer(time.Until(then))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
