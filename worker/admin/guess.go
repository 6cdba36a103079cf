package admin

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// guessEvery is how often a wrong token is answered.
	guessEvery = 100 * time.Millisecond
	// maxGuessing is how many may wait for that.
	maxGuessing = 50
	// toldEvery is how often wrong tokens are logged.
	toldEvery = time.Second
)

// guesses slows down who sends wrong tokens, and tells of them.
type guesses struct {
	logger *zap.Logger

	mu      sync.Mutex
	next    time.Time // when the next is answered
	waiting int
	told    time.Time // when it was last logged
	untold  int       // how many came since
}

// tooMany says that so many wait that no more tokens are looked at.
func (g *guesses) tooMany() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.waiting >= maxGuessing
}

// wrong tells of a wrong token, and returns when it may be answered.
func (g *guesses) wrong(ctx context.Context, from, path string) {
	now := time.Now()
	g.mu.Lock()
	if now.Sub(g.told) >= toldEvery {
		g.logger.Warn("wrong token for a change", zap.String("from", from), zap.String("path", path), zap.Int("not_logged_before", g.untold))
		g.told, g.untold = now, 0
	} else {
		g.untold++
	}
	at := g.next
	if at.Before(now) {
		at = now
	}
	g.next = at.Add(guessEvery)
	wait := g.next.Sub(now)
	g.waiting++
	g.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	g.mu.Lock()
	g.waiting--
	g.mu.Unlock()
}
