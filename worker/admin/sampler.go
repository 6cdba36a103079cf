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
	// remembered is how far back the history of a limiter goes.
	remembered = 5 * time.Minute
)

// sampler reads overviews for everybody, at most one a second, and remembers their limiters.
type sampler struct {
	Source
	latest *cached[jobview.Overview]

	mu      sync.Mutex
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
	s := &sampler{Source: source, history: map[string][]point{}}
	s.latest = newCached(s.read, lasts)
	return s
}

// Overview returns the latest overview if it is at most a second old, or a few seconds if there
// are hundreds of limits. Otherwise it reads a new one, while other callers wait.
func (s *sampler) Overview(ctx context.Context) (jobview.Overview, error) { return s.latest.get(ctx) }

// forget makes the next Overview read a new one, because something was changed.
func (s *sampler) forget() { s.latest.forget() }

// lasts is how long an overview may be shown.
func lasts(o jobview.Overview) time.Duration {
	limiters := 0
	for _, l := range o.Limits {
		limiters += max(len(l.Limiters), 1)
	}
	return max(sampleEvery, time.Duration(limiters)*sampleEach)
}

func (s *sampler) read(ctx context.Context) (jobview.Overview, error) {
	o, err := s.Source.Overview(ctx)
	if err == nil {
		s.remember(o)
	}
	return o, err
}

// remember adds an overview to the history.
func (s *sampler) remember(o jobview.Overview) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range o.Limits {
		for _, u := range l.Limiters {
			s.history[u.Name] = append(s.history[u.Name], point{
				at: o.At, used: u.Used, reserved: u.Reserved, allowed: allowed(u.FleetUsage), paused: u.Paused > 0, bracket: bracketOf(l.Learnt),
			})
		}
	}
	oldest := o.At.Add(-remembered)
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
