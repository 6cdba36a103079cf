package throttle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// TestGiveBack: a grant of 3 that was not used goes back, with another grant of 3 in its bucket,
// 417 us later. What is left in the log must not expire before what was used.
func TestGiveBack(t *testing.T) {
	const apart = 417 * time.Microsecond
	tests := []struct {
		name     string
		released int64         // of what was used, before: it comes off the oldest grant
		after    time.Duration // from the later grant
		want     []int64       // permits left at the first time and at the later
	}{
		{"all of it", 0, 0, []int64{0, 3}},
		{"a release took part of it", 2, 0, []int64{0, 1}},
		{"a release took all of it", 3, 0, []int64{0, 0}},
		{"its time is over, that of the other is not", 0, 975_660*time.Microsecond - apart, []int64{0, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := fakeServer(t)
			c, err := New(s.rdb, Options{})
			check(t, err)
			l, err := c.Limiter("api")
			check(t, err)
			check(t, l.SetRate(t.Context(), Rate{Permits: 10, Interval: 966 * time.Millisecond})) // and 9.66 ms
			s.pass(3442 * time.Microsecond)
			q := newScriptQueue(l)
			grant := func() int64 {
				r := q.send(t, s.rdb, call3())
				q.learn(r)
				if len(r.Runs[0].Grants) != 1 || r.Runs[0].Grants[0].Offset != 0 {
					t.Fatalf("reply %s, want 3 permits now", q.reply)
				}
				return int64(r.Base)
			}
			first := grant()
			s.pass(apart)
			later := grant()
			s.pass(tt.after)
			if tt.released > 0 {
				q.learn(q.send(t, s.rdb, batchCall{refresh: []bool{false}, ahead: []int64{0}, releases: []int64{tt.released}}))
			}
			q.send(t, s.rdb, batchCall{
				refresh: []bool{false}, ahead: []int64{0}, releases: []int64{0},
				returns: []giving{{at: first, epochs: q.epochs(), ns: []int64{3}}},
			})
			got := []int64{0, 0}
			for _, r := range readState(t, s.rdb, l).records {
				got[slices.Index([]int64{first, later}, r.at)] = r.n
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%v permits left, want %v", got, tt.want)
			}
		})
	}
}

// call3 asks for 3 permits, now.
func call3() batchCall {
	return batchCall{
		refresh: []bool{false}, ahead: []int64{0}, releases: []int64{0},
		asks: []ask{{count: 1, ns: []int64{3}}},
	}
}

// TestGiveBackFromMany: a reservation of 100 goes back whole, though others have released most of it meanwhile (that comes
// off the oldest grant), and what they used is in many entries of its bucket.
func TestGiveBackFromMany(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(Rate{Permits: 1000, Interval: 24 * time.Hour, Guard: -1}) // whose buckets last minutes
		other := b.limiter(b.client())
		r, err := l.Reserve(b.Context(), 100, 0)
		check(b, err)
		for range 30 {
			check(b, other.Acquire(b.Context(), 10))
		}
		check(b, other.Release(b.Context(), 95))
		r.Cancel()
		testkit.Eventually(b, 3*time.Second, "what was not used goes back", func() bool {
			n, err := l.AvailablePermits(b.Context())
			return err == nil && n == 1000-(300-95)
		}, func() string { n, err := l.AvailablePermits(b.Context()); return fmt.Sprint(n, err) })
	})
}
