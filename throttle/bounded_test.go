package throttle

import (
	"math/rand/v2"
	"testing"
	"time"
)

// Clients that ask every few milliseconds keep a limit fully used for several intervals, with
// reservations up to the horizon: the log stays small, and the promise holds.
func TestBusyLogStaysBounded(t *testing.T) {
	noRaces(t)
	t.Parallel()
	s := fakeServer(t)
	client, err := New(s.rdb, Options{})
	check(t, err)
	l, err := client.LimiterWithRate("busy", Rate{Permits: 3000, Interval: 2 * time.Second})
	check(t, err)
	x := &trace{s: s, truth: map[string][]entry{}, count: map[string]int{}}
	var queues []*tracedQueue
	for range 3 {
		queues = append(queues, &tracedQueue{scriptQueue: newScriptQueue(l), lastSeen: make([]int64, 1)})
	}
	random := rand.New(rand.NewPCG(1, 2))
	most := 0
	for i := range 500 {
		q := queues[i%len(queues)]
		before := x.states(t, q)
		horizon := int64(2_000_000)
		b := batchCall{refresh: []bool{i%300 == 0}, ahead: []int64{0}, releases: []int64{0}}
		b.asks = append(b.asks, ask{longest: horizon, reach: horizon, near: horizon, count: 1 + random.Int64N(6), ns: []int64{1 + random.Int64N(3)}})
		if len(q.held) > 0 && i%5 == 0 {
			n := random.IntN(len(q.held))
			b.returns = append(b.returns, q.held[n])
			q.held = append(q.held[:n], q.held[n+1:]...)
		}
		copy(q.lastSeen, q.epochs())
		q.last = b
		r := q.send(t, s.rdb, b)
		x.judge(t, q, before, r)
		x.hold(q, r)
		q.learn(r)
		if len(q.held) > 100 {
			q.held = q.held[50:]
		}
		most = max(most, len(x.states(t, q)[0].records))
		s.pass(time.Duration(1+random.IntN(6000)) * time.Microsecond)
	}
	t.Logf("at most %d entries; seen %v", most, x.count)
	if most > 800 {
		t.Errorf("%d entries for a limit of 3000", most)
	}
	if x.count["in buckets"] == 0 || x.count["reservations"] == 0 {
		t.Errorf("not busy enough: %v", x.count)
	}
}

// A permit counts for its interval, to the microsecond.
func TestPermitCountsItsInterval(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("3/1s"))
		for _, after := range []time.Duration{0, ms(400), ms(200)} {
			time.Sleep(after)
			b.expectTry(l, 1, true)
		}
		time.Sleep(ms(400) - time.Microsecond)
		b.expectTry(l, 1, false)
		time.Sleep(time.Microsecond)
		b.expectTry(l, 1, true)
		b.expectTry(l, 1, false)
		time.Sleep(ms(400) - time.Microsecond)
		b.expectTry(l, 1, false)
		time.Sleep(time.Microsecond)
		b.expectTry(l, 1, true)
	})
}

// A log of more entries than Redis keeps apart gives nothing back early.
func TestMergedLogKeepsTheLimit(t *testing.T) {
	t.Parallel()
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("1000/10s"))
		random := rand.New(rand.NewPCG(3, 4))
		var uses []time.Time
		for range 3000 {
			time.Sleep(time.Duration(random.Int64N(int64(ms(15)))))
			check(b, l.Acquire(b.Context(), 1))
			uses = append(uses, time.Now())
		}
		if n := b.rdb.ZCard(b.Context(), l.keys()[2]).Val(); n > 600 {
			b.Errorf("%d entries: nothing was merged", n)
		}
		if n := busiest(uses, 10*time.Second); n > 1000 {
			b.Errorf("%d permits in 10 s", n)
		}
	})
}
