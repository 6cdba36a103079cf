package throttle

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// learner is an adaptive limiter in a server whose clock stands still, and its API, which accepts
// so many requests in any second.
type learner struct {
	server
	t      *testing.T
	l      *Limiter
	cap    int
	down   bool    // it answers 500
	seen   []int64 // when the API accepted requests
	queue  *scriptQueue
	no     uint64
	refus  int
	took   int
	failed int
	coarse bool          // reservations lie further ahead, and reports are made less often: fewer calls
	late   time.Duration // its responses
	tells  []int64       // what its headers say is its limit, one after the other
}

func newLearner(t *testing.T, rate Rate, b script.Bracket) *learner {
	s := fakeServer(t)
	c, err := New(s.rdb, Options{ID: "one"})
	check(t, err)
	t.Cleanup(func() { check(t, c.Close()) })
	l, err := c.Limiter("api")
	check(t, err)
	check(t, l.SetRate(t.Context(), rate))
	a := &learner{server: s, t: t, l: l, queue: newScriptQueue(l)}
	a.begin(b)
	return a
}

func (a *learner) begin(b script.Bracket) {
	a.t.Helper()
	reply, err := a.l.line.Change(a.t.Context(), script.Adaptive, b.Start, b.Min, b.Max, "")
	check(a.t, err)
	if reply != int64(1) {
		a.t.Fatalf("adaptive.lua: %v", reply)
	}
}

func (a *learner) learnt() script.Learnt {
	a.t.Helper()
	field := a.rdb.HGet(a.t.Context(), "api", "adapt").Val()
	l, ok := script.DecodeLearnt(field)
	if !ok {
		a.t.Fatalf("adapt is %q", field)
	}
	return l
}

// report reports what was seen just now.
func (a *learner) report(accepted, refused int64) (limit int64) {
	a.t.Helper()
	r := a.next()
	r.Seen = []script.Seen{{Accepted: accepted, Refused: refused}}
	return a.send(r)
}

// next returns the next report, with nothing in it yet.
func (a *learner) next() *script.Report {
	a.no++
	return &script.Report{No: script.BatchNo(a.no), Bracket: script.Bracket{Start: 1, Min: 1, Max: 1000}}
}

func (a *learner) send(r *script.Report) (limit int64) {
	a.t.Helper()
	keys := script.ReportKeys(script.KeysOf("api", "one"), "{api}:report")
	reply, _, err := script.Call(a.t.Context(), a.rdb, script.Adapt, keys, r.Args()...)
	check(a.t, err)
	limit, _, err = script.DecodeReport(reply)
	check(a.t, err)
	return limit
}

// run makes requests for d, as fast as the limit allows. As a client does, it reserves some time
// ahead in one call, and uses the permits to the microsecond when they are due.
func (a *learner) run(d time.Duration) {
	a.t.Helper()
	ahead, every := 50*time.Millisecond, 120*time.Millisecond // every: time between reports of what was accepted
	if a.coarse {
		ahead, every = 200*time.Millisecond, 250*time.Millisecond
	}
	now := a.server.now(a.t)
	until := func(at int64) {
		a.pass(micros(at - now))
		now = at
	}
	asked := batchCall{refresh: []bool{false}, ahead: []int64{0}, releases: []int64{0},
		asks: []ask{{longest: ahead.Microseconds(), reach: ahead.Microseconds(), near: ahead.Microseconds(), count: 256, ns: []int64{1}}}}
	var took []int64 // accepted, not reported yet
	for end, reports := now+d.Microseconds(), now+every.Microseconds(); now < end; {
		reply := a.queue.send(a.t, a.rdb, asked)
		a.queue.learn(reply)
		next := now + ahead.Microseconds()
		for _, g := range reply.Runs[0].Grants {
			until(max(now, int64(reply.Base)+g.Offset))
			for range g.Count {
				if a.down {
					a.failed++
				} else if a.api(now) {
					took = append(took, now)
				} else {
					a.report(0, 1)
				}
			}
		}
		if wait := reply.Runs[0].Wait; wait > ahead {
			next += wait.Microseconds() - ahead.Microseconds()
		}
		until(max(now+1, min(next, reports)))
		if now >= reports {
			reports += every.Microseconds()
			r, known := a.next(), 0
			for _, at := range took {
				if micros(now-at) >= a.late {
					r.Seen = append(r.Seen, script.Seen{Age: micros(now - at), Accepted: 1})
					known++
				}
			}
			if len(a.tells) > 0 {
				r.Told, r.Per = a.tells[a.no%uint64(len(a.tells))], time.Second
			}
			if known > 0 {
				a.send(r)
			}
			took = took[known:]
		}
	}
}

// api accepts or refuses one request.
func (a *learner) api(at int64) bool {
	for len(a.seen) > 0 && at-a.seen[0] >= time.Second.Microseconds() {
		a.seen = a.seen[1:]
	}
	if len(a.seen) >= a.cap {
		a.refus++
		return false
	}
	a.seen = append(a.seen, at)
	a.took++
	return true
}

// TestLearnsAHiddenLimit: from a tenth, the limit comes to what the API accepts, with few
// refusals, stays there, follows it down in one cut, and up again.
func TestLearnsAHiddenLimit(t *testing.T) {
	noRaces(t)
	t.Parallel()
	a := newLearner(t, Rate{Permits: 4, Interval: time.Second, Guard: -1}, script.Bracket{Start: 4, Min: 1, Max: 1000})
	a.cap = 40
	a.run(20 * time.Second)
	if l := a.learnt(); l.Limit < 38 || l.Limit > 41 || l.Cuts > 2 || a.refus > 5 {
		t.Fatalf("after 20 windows: %+v, %d refused", l, a.refus)
	}
	took := a.took
	a.run(20 * time.Second)
	if n := a.took - took; n < 20*38 || a.refus > 10 {
		t.Errorf("20 windows later: %d of %d taken, %d refused: %+v", n, 20*40, a.refus, a.learnt())
	}
	before := a.learnt().Cuts
	a.cap = 20
	a.run(4 * time.Second)
	if l := a.learnt(); l.Limit > 20 || l.Limit < 12 || l.Cuts != before+1 || l.Others.IsZero() {
		t.Errorf("after the API halved its limit: %+v, want one cut more than %d", l, before)
	}
	a.cap = 40
	a.run(30 * time.Second)
	if l := a.learnt(); l.Limit < 36 {
		t.Errorf("30 windows after it had its limit again: %+v", l)
	}
}

// TestLearnsNothingFromSilence: without outcomes, as when the API answers 500 to
// everything, the limit stays.
func TestLearnsNothingFromSilence(t *testing.T) {
	t.Parallel()
	a := newLearner(t, Rate{Permits: 40, Interval: time.Second}, script.Bracket{Start: 40, Min: 1, Max: 1000})
	a.cap, a.down = 1000, true
	a.run(10 * time.Second)
	if a.failed < 9*40 {
		t.Fatalf("%d requests failed, want about 400", a.failed)
	}
	if l := a.learnt(); l.Limit != 40 || l.Cuts != 0 {
		t.Errorf("%+v, want 40", l)
	}
}

// TestReportsOnce: a report that is repeated counts once, and what the API says about its limit
// is heeded.
func TestReportsOnce(t *testing.T) {
	a := newLearner(t, Rate{Permits: 10, Interval: time.Second}, script.Bracket{Start: 10, Min: 2, Max: 100})
	r := &script.Report{No: script.BatchNo(7), Seen: []script.Seen{{Accepted: 3}}}
	for range 3 {
		a.send(r)
	}
	if l := a.learnt(); l.Taken != 3 {
		t.Errorf("%d taken, want 3", l.Taken)
	}
	for no, told := range []struct {
		n    int64
		per  time.Duration
		want int64
	}{{3000, time.Minute, 50}, {1 << 40, time.Hour, 100}, {1, 24 * time.Hour, 2}, {30, time.Second, 30}} {
		a.pass(time.Second)
		if got := a.send(&script.Report{No: script.BatchNo(uint64(10 + no)), Told: told.n, Per: told.per}); got != told.want {
			t.Errorf("told %d in %v: limit %d, want %d", told.n, told.per, got, told.want)
		}
	}
}

// TestSpoiltLearning: whatever the field holds, a report makes sense of it or begins again.
func TestSpoiltLearning(t *testing.T) {
	a := newLearner(t, Rate{Permits: 10, Interval: time.Second}, script.Bracket{Start: 10, Min: 2, Max: 100})
	for _, field := range []string{"", "x", "1 2", "-1 -1", "1e300 1 1", "nan", fmt.Sprint(make([]int, 33)), "10 2 100 1000000 0 4294967296"} {
		check(t, a.rdb.HSet(t.Context(), "api", "adapt", field).Err())
		if got := a.report(1, 0); got != 10 {
			t.Errorf("%q: limit %d", field, got)
		}
	}
	check(t, a.rdb.HSet(t.Context(), "api", "adapt", "0").Err())
	if got := a.report(1, 0); got != 0 {
		t.Errorf("ended: limit %d", got)
	}
	check(t, a.rdb.Del(t.Context(), "api").Err())
	if got := a.report(1, 0); got != 0 {
		t.Errorf("deleted: limit %d", got)
	}
}
