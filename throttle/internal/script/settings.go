package script

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Remote is a time of Redis's clock, in us.
type Remote int64

// Settings is what a client must know about a limiter to ask for its permits.
type Settings struct {
	Seal      string // the whole configuration, as the scripts compare it
	Epoch     int64
	Rate      int64
	Interval  time.Duration
	Guard     time.Duration
	Offset    int64 // us by which calendar windows are moved
	PerClient bool
	Calendar  bool
	Smooth    bool
	KeepAlive time.Duration // 1ms for a limiter that expires in some other way
	Plain     bool          // fast.lua knows everything that applies to the limiter
	Expires   time.Duration // how long after its last use its keys are to expire; zero: they stay
}

// Span is how long a grant counts.
func (s Settings) Span() time.Duration {
	if s.Calendar {
		return s.Interval
	}
	return s.Interval + s.Guard
}

// PerPermit is the time in which the limit gives n permits.
func (s Settings) PerPermit(n int64) time.Duration {
	return time.Duration(min(float64(n)*float64(s.Span())/float64(s.Rate), math.MaxInt64/2))
}

// Positions in a seal, as fields.lua writes it, of fields that a reply has nowhere else.
const (
	sealKeepAlive = 3
	sealOffset    = 7
	sealPause     = 9
	sealFields    = 10
)

// settings reads the configuration of a limiter in this epoch.
func (d *decoder) settings(epoch int64) *Settings {
	s := &Settings{Seal: d.word(), Epoch: epoch, Rate: d.next(), Interval: d.duration(), Guard: d.duration()}
	s.PerClient, s.Calendar, s.Smooth = d.index(2) == 1, d.index(2) == 1, d.index(2) == 1
	if d.err == nil && (s.Rate < 1 || s.Interval <= 0 || s.Guard < 0) {
		d.fail("settings %+v", *s)
	}
	if f := strings.Split(s.Seal, ":"); len(f) == sealFields {
		s.KeepAlive = KeepAlive(s.Seal)
		s.Offset, _ = strconv.ParseInt(f[sealOffset], 10, 64)
		if s.KeepAlive > time.Millisecond { // not a limiter that expires in some other way
			s.Expires = max(s.KeepAlive, (s.Span() + time.Millisecond - 1).Truncate(time.Millisecond))
		}
		s.Plain = !s.Calendar && !s.Smooth && f[sealPause] == "0" && (s.KeepAlive == 0 || s.Expires > 0 && !s.PerClient)
	}
	return s
}

// KeepAlive is the keepAlive in a seal, or in a configuration to create a limiter with; zero for
// none.
func KeepAlive(config string) time.Duration {
	f := strings.Split(config, ":")
	if len(f) <= sealKeepAlive {
		return 0
	}
	ms, _ := strconv.ParseInt(f[sealKeepAlive], 10, 64)
	return time.Duration(ms) * time.Millisecond
}
