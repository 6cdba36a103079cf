// Package hiddenapi is a stand-in for third-party APIs whose limits callers have to find: an
// API that never says its limit, one that says it as the IETF describes, and one for each
// preset of httplimit that does what the real API documents. Tests, the simulations of
// bench/adapt and the demo measure with it.
package hiddenapi

import (
	"fmt"
	"time"
)

// Kind is the way in which an API counts.
type Kind string

// The three ways in which APIs count.
const (
	Sliding Kind = "sliding" // at most so many in any interval
	Fixed   Kind = "fixed"   // at most so many in each interval, counted from 0 again when the next one begins
	Bucket  Kind = "bucket"  // a bucket that holds so many, and leaks so many in an interval
)

// Limit is a limit of an API. It has no clock: its owner says when something happens, in order,
// as the time since a fixed start. It is not safe for concurrent use.
type Limit struct {
	kind     Kind
	quota    int64
	size     float64 // of a bucket
	interval time.Duration
	offset   time.Duration // when a fixed window begins

	log   []taken // Sliding: the entries that count, oldest first
	used  float64 // Fixed: in this window. Bucket: how full it is
	since time.Duration
}

type taken struct {
	at time.Duration
	n  int64
}

// NewLimit returns a limit of quota units in an interval. A bucket holds as much as
// it leaks in an interval; offset moves the beginning of fixed windows.
func NewLimit(kind Kind, quota int64, interval, offset time.Duration) (*Limit, error) {
	switch {
	case kind != Sliding && kind != Fixed && kind != Bucket:
		return nil, fmt.Errorf("hidden API: %q: want sliding, fixed or bucket", kind)
	case quota < 0 || interval <= 0 || offset < 0 || offset >= interval:
		return nil, fmt.Errorf("hidden API: %d in %v, moved by %v: want at least 0 in a time above 0, moved by less than that", quota, interval, offset)
	}
	l := &Limit{kind: kind, quota: quota, size: float64(quota), interval: interval, offset: offset}
	l.since = -offset // the beginning of the window before the first request
	return l, nil
}

// Quota is how much the limit allows in an interval.
func (l *Limit) Quota() int64 { return l.quota }

// SetQuota changes the limit. What was used stays used. A bucket's size changes with it.
func (l *Limit) SetQuota(quota int64) { l.quota, l.size = quota, float64(quota) }

// advance removes what no longer counts.
func (l *Limit) advance(now time.Duration) {
	switch l.kind {
	case Sliding:
		old := 0
		for old < len(l.log) && now-l.log[old].at >= l.interval {
			l.used -= float64(l.log[old].n)
			old++
		}
		l.log = l.log[old:]
	case Fixed:
		if n := (now - l.since) / l.interval; n > 0 {
			l.used, l.since = 0, l.since+n*l.interval
		}
	case Bucket:
		l.used = max(l.used-(now-l.since).Seconds()*float64(l.quota)/l.interval.Seconds(), 0)
		l.since = now
	}
}

// Fits reports whether n units are allowed now.
func (l *Limit) Fits(now time.Duration, n int64) bool {
	l.advance(now)
	if l.kind == Bucket {
		return l.used+float64(n) <= l.size+1e-6 // what has leaked is a sum of fractions
	}
	return int64(l.used)+n <= l.quota
}

// Take uses n units, which fit.
func (l *Limit) Take(now time.Duration, n int64) {
	l.advance(now)
	l.used += float64(n)
	if l.kind == Sliding {
		l.log = append(l.log, taken{now, n})
	}
}

// Left is how much is left, and how long it takes until everything is available again.
func (l *Limit) Left(now time.Duration) (int64, time.Duration) {
	l.advance(now)
	left := max(int64(l.size-l.used), 0)
	switch l.kind {
	case Fixed:
		return left, l.since + l.interval - now
	case Bucket:
		return left, time.Duration(l.used / max(float64(l.quota), 1) * float64(l.interval))
	}
	if len(l.log) == 0 {
		return left, 0
	}
	return left, l.log[len(l.log)-1].at + l.interval - now
}

// Wait is the time after which n more units fit if nobody else takes them.
func (l *Limit) Wait(now time.Duration, n int64) time.Duration {
	if l.Fits(now, n) {
		return 0
	}
	switch l.kind {
	case Fixed:
		return l.since + l.interval - now
	case Bucket:
		return time.Duration((l.used + float64(n) - l.size) / max(float64(l.quota), 1) * float64(l.interval))
	}
	used := int64(l.used)
	for _, t := range l.log {
		if used -= t.n; used+n <= l.quota {
			return t.at + l.interval - now
		}
	}
	return l.interval
}
