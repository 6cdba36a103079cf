package line

import "github.com/jobthrottle/jobthrottle/throttle/internal/script"

// surplus remembers by how much this process was lately ahead of an equal share of each
// member: whoever comes first to a limit that is free may take all of it at once. The process
// makes up for that gradually. It reserves less than its share of what comes next, and leaves
// the rest to whoever asks. A request counts as one permit, however many it was for: requests
// for many are served in turn like any other.
type surplus struct {
	had   []float64 // requests served beyond an equal share of the permits
	since Local     // the time as of which that is so
}

// served records that the permits of n requests were handed out.
func (s *surplus) served(n int64, config []script.Settings, contenders int64, now Local) {
	s.settle(config, contenders, now)
	for i, c := range config {
		s.had[i] = min(s.had[i]+float64(n), float64(c.Rate))
	}
}

// settle takes off the surplus what an equal share allowed in the time that has passed.
func (s *surplus) settle(config []script.Settings, contenders int64, now Local) {
	if s.had == nil {
		s.had = make([]float64, len(config))
	}
	passed := now.Sub(s.since)
	s.since = now
	for i, c := range config {
		if c.Rate > 0 {
			s.had[i] = max(0, s.had[i]-equalShare(c, contenders)*float64(passed)/float64(c.Span()))
		}
	}
}

// withheld is how much of its share of a member the process leaves to others:
// at most half, and nothing as long as it was only a burst ahead.
func (s *surplus) withheld(i int, c script.Settings, contenders int64) int64 {
	share := equalShare(c, contenders)
	return int64(min(max(s.had[i]-2*share, 0), share/2))
}

// equalShare is how many permits each of the contenders gets in one span of the limit.
func equalShare(c script.Settings, contenders int64) float64 {
	return float64(c.Rate) / float64(max(contenders, 1))
}
