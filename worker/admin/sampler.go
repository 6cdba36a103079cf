package admin

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

const (
	// sampleEvery is how old an overview may be to be shown again. sampleEach is how much older
	// it may be for each limiter in it: reading one costs Redis about 20 us.
	sampleEvery = time.Second
	sampleEach  = 4 * time.Millisecond
	// idleSampleEvery is how often an overview is read while nobody uses the page.
	idleSampleEvery = 10 * time.Second
	// sampleTimeout is how long reading one may take.
	sampleTimeout = 5 * time.Second
	// remembered is how far back the history of a limiter goes.
	remembered = 5 * time.Minute
)

// sampler reads overviews for everybody, at most one a second, and remembers their limiters.
type sampler struct {
	Source

	mu      sync.Mutex
	latest  jobview.Overview
	err     error
	readAt  time.Time
	lasts   time.Duration      // how long the latest may be shown
	history map[string][]point // by limiter
}

// point is the usage of a limiter at a time.
type point struct {
	at             time.Time
	used, reserved int64
	allowed        int64
	paused         bool
	bracket
}

// bracket is what the API of a limit that adapts accepts, as far as is known: at least and at
// most. 0 means unknown.
type bracket struct{ accepted, most int64 }

func bracketOf(l *operate.Learnt) bracket {
	if l == nil {
		return bracket{}
	}
	return bracket{l.Accepted, l.Most}
}

func newSampler(source Source) *sampler {
	return &sampler{Source: source, history: map[string][]point{}}
}

// Overview returns the latest overview if it is at most a second old, or a few seconds if there
// are hundreds of limits. Otherwise it reads a new one, while other callers wait. An error
// counts like an overview: Redis is not asked more often because it does not answer.
func (s *sampler) Overview(ctx context.Context) (jobview.Overview, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.readAt.IsZero() && time.Since(s.readAt) < s.lasts {
		return s.latest, s.err
	}
	// If the caller goes away during the read, the others still get its result.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sampleTimeout)
	defer cancel()
	s.latest, s.err = s.Source.Overview(ctx)
	s.readAt, s.lasts = time.Now(), sampleEvery
	if s.err == nil {
		limiters := 0
		for _, l := range s.latest.Limits {
			limiters += max(len(l.Limiters), 1)
		}
		s.lasts = max(sampleEvery, time.Duration(limiters)*sampleEach)
		s.remember()
	}
	return s.latest, s.err
}

// forget makes the next Overview read a new one, because something was changed.
func (s *sampler) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readAt = time.Time{}
}

// remember adds the latest overview to the history.
func (s *sampler) remember() {
	for _, l := range s.latest.Limits {
		for _, u := range l.Limiters {
			s.history[u.Name] = append(s.history[u.Name], point{
				at: s.latest.At, used: u.Used, reserved: u.Reserved, allowed: allowed(u.FleetUsage), paused: u.Paused > 0, bracket: bracketOf(l.Learnt),
			})
		}
	}
	oldest := s.latest.At.Add(-remembered)
	for name, points := range s.history {
		first := slices.IndexFunc(points, func(p point) bool { return !p.at.Before(oldest) })
		if first < 0 { // it belongs to a keyed limit, and is no longer among its longest lines
			delete(s.history, name)
			continue
		}
		s.history[name] = points[first:]
	}
}

// past returns what is remembered of each limiter, in order.
func (s *sampler) past() map[string][]point {
	s.mu.Lock()
	defer s.mu.Unlock()
	past := make(map[string][]point, len(s.history))
	for name, points := range s.history {
		past[name] = slices.Clone(points)
	}
	return past
}

// run continues the history while nobody uses the page, until ctx ends.
func (s *sampler) run(ctx context.Context) {
	ticker := time.NewTicker(idleSampleEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			_, _ = s.Overview(ctx) // requests get the error themselves
		}
	}
}

// allowed is how many permits the fleet may use in an interval.
func allowed(u operate.FleetUsage) int64 {
	if u.Rate.Type == throttle.PerClient {
		return u.Rate.Permits * int64(max(len(u.PerClient), 1))
	}
	return u.Rate.Permits
}
