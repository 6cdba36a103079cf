package throttle

import (
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// TestExchangeKeepsWhatItHad: a client that had reserved more than its share, before others came, has as much after it has
// exchanged it. What it only gives back, or what is due at once, gives it no more.
func TestExchangeKeepsWhatItHad(t *testing.T) {
	const near, fair = 500_000, 150
	asking := func(n, longest int64) []ask {
		return []ask{{longest: longest, reach: min(longest, 2_000_000), near: near, count: n, ns: []int64{1}}}
	}
	for name, tt := range map[string]struct {
		after    time.Duration // since the permits before the exchanged ones
		kind     script.ReturnKind
		first    int64 // permits of the first second, that go back
		released int64 // permits that were used
		asks     int64
		now, far int64 // what it gets
	}{
		"exchanged":             {300 * time.Millisecond, script.Exchanged, 0, 0, 290, 0, 290},
		"given back":            {300 * time.Millisecond, script.Unused, 0, 0, 290, 0, fair},
		"asks for more":         {300 * time.Millisecond, script.Exchanged, 0, 0, 400, 0, 290},
		"some are released":     {300 * time.Millisecond, script.Exchanged, 0, 50, 400, 50, 240},
		"those only given back": {1050 * time.Millisecond, script.Unused, 100, 0, 390, 100, fair},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fakeServer(t)
			queue := func() *scriptQueue {
				c, err := New(s.rdb, Options{})
				check(t, err)
				t.Cleanup(func() { check(t, c.Close()) })
				l, err := c.Limiter("api")
				check(t, err)
				return newScriptQueue(l)
			}
			mine, other := queue(), queue()
			check(t, mine.limiters[0].SetRate(t.Context(), Rate{Permits: 300, Interval: time.Second, Guard: -1}))
			released := int64(0)
			send := func(q *scriptQueue, ahead int64, asks []ask, returns ...giving) script.Outcome {
				t.Helper()
				r := q.send(t, s.rdb, batchCall{refresh: []bool{true}, ahead: []int64{ahead}, releases: []int64{released}, asks: asks, returns: returns})
				q.learn(r)
				if r.Status != script.OK || len(r.Runs) != 1 {
					t.Fatalf("%+v", r)
				}
				return r.Runs[0]
			}
			begin := s.now(t)
			send(mine, 0, asking(300, 0))
			at, ahead := begin+1_000_000, int64(0) // when its reservations are due
			if tt.first > 0 {
				send(mine, 0, asking(300, 2_000_000))
				s.pass(900 * time.Millisecond)
				at, ahead = at+1_000_000, 300
			}
			send(mine, ahead, asking(290, 2_000_000))
			s.pass(10 * time.Millisecond)
			send(other, 0, asking(300, 2_000_000))
			s.pass(time.Duration(begin-s.now(t))*time.Microsecond + tt.after)
			returns := []giving{{at: at, kind: tt.kind, epochs: mine.epochs(), ns: []int64{290}}}
			if tt.first > 0 {
				returns = append(returns, giving{at: at - 1_000_000, kind: tt.kind, epochs: mine.epochs(), ns: []int64{tt.first}})
			}
			released = tt.released
			got := map[bool]int64{}
			for _, g := range send(mine, 0, asking(tt.asks, 2_000_000), returns...).Grants {
				got[g.Offset > near] += g.Count
			}
			if got[false] != tt.now || got[true] != tt.far {
				t.Errorf("%d now and %d far, want %d and %d", got[false], got[true], tt.now, tt.far)
			}
		})
	}
}
