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
	// maxGuessing is how many may wait for an answer: at most 2 s.
	maxGuessing = 20
	// toldEvery is how often wrong tokens are logged.
	toldEvery = time.Second
)

// guesses slows down clients that send wrong tokens, and logs them. It slows down nobody else,
// and forgets them within the longest wait.
type guesses struct {
	logger *slog.Logger

	mu     sync.Mutex
	next   time.Time // when the last one that waits is answered
	told   time.Time // when it was last logged
	untold int       // how many came since then
}

// wrong logs a wrong token, and returns when to answer it. It returns false if as many wait as
// may: then the request is answered at once, and delays no other.
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
