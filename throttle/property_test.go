package throttle

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"
)

// stepsPerTrace is rapid's mean; the traces of a run have about that many steps each.
const stepsPerTrace = 50

// steps is how many steps a property is checked for.
func steps() int {
	if os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" {
		return 100_000
	}
	return 5_000
}

// Every reply of the script is the one that the model predicts, whatever came before; and no
// window ever holds more than the limit, at any point of a trace.
func TestPropertyFakeClock(t *testing.T) {
	noRaces(t)
	t.Parallel()
	checkTraces(t, fakeServer(t), steps())
}

// The same on a real Redis, whose own clock feeds the model.
func TestPropertyRealRedis(t *testing.T) {
	checkTraces(t, realServer(t, redistest.Start(t)), quarter(steps()))
}

func checkTraces(t *testing.T, s server, steps int) {
	for name, value := range map[string]int{"rapid.steps": stepsPerTrace, "rapid.checks": max(steps/stepsPerTrace/8, 5)} {
		old := flag.Lookup(name).Value.String()
		check(t, flag.Set(name, strconv.Itoa(value)))
		t.Cleanup(func() { check(t, flag.Set(name, old)) })
	}
	total, seen := map[string]int{}, map[string]int{}
	traces, sum := 0, 0
	property := func(t *rapid.T) {
		traces++
		x := newTrace(t, s, fmt.Sprintf("trace%d", traces), seen)
		actions := map[string]func(*rapid.T){
			"ask": x.ask, "ask again": x.ask, "ask once more": x.ask, "lose the reply": x.lose, "repeat": x.repeat, "repeat an old one": x.repeatOld,
			"pass time": x.pass, "pass more time": x.pass, "set": x.set, "pause": x.pause, "delete": x.delete, "lose the value": x.loseValue, "foreign": x.foreign,
		}
		for name, f := range actions {
			actions[name] = func(t *rapid.T) {
				if x.calm && slices.Contains([]string{"set", "pause", "delete", "foreign"}, name) {
					f = x.ask
				}
				f(t)
				total[name]++
				sum++
			}
		}
		t.Repeat(actions)
	}
	for sum < steps && !t.Failed() { // the length of a trace is random
		rapid.Check(t, property)
	}
	t.Logf("%d steps in %d traces: %v; seen %v", sum, traces, total, seen)
	if seen["by fast.lua"] == 0 && !t.Failed() {
		t.Error("fast.lua served no call")
	}
}

// trace is a random history of three limiters and the clients that share them.
type trace struct {
	s        server
	calm     bool // plain limits that nobody changes, as fast.lua serves them
	operator []*Limiter
	clients  []*Client
	queues   []*tracedQueue
	// truth has the permits that may be used or were used, by the key of their log.
	truth map[string][]entry
	count map[string]int
}

// tracedQueue is a queue, its latest call, and the reply.
type tracedQueue struct {
	*scriptQueue
	last     batchCall
	lastSeen []int64
	reply    string
	keep     int64 // until when the server's clock must know the reply
}

func newTrace(t *rapid.T, s server, prefix string, count map[string]int) *trace {
	x := &trace{s: s, truth: map[string][]entry{}, count: count}
	check(t, s.rdb.FlushAll(context.Background()).Err()) // the server is this test's own
	operator, err := New(s.rdb, Options{ID: "operator"})
	check(t, err)
	x.calm = rapid.IntRange(0, 2).Draw(t, "calm") == 0
	var names []string
	for i := range 3 {
		names = append(names, fmt.Sprintf("%s:%c", prefix, 'a'+i))
		l, err := operator.Limiter(names[i])
		check(t, err)
		x.operator = append(x.operator, l)
		check(t, l.SetRate(context.Background(), x.rate(t)))
	}
	for c, queues := range [][][]int{{{0}, {0, 1}}, {{0}, {1}, {0, 1, 2}}, {{2}, {1, 0}}} {
		client, err := New(s.rdb, Options{ID: fmt.Sprintf("client%d", c)})
		check(t, err)
		x.clients = append(x.clients, client)
		for _, members := range queues {
			var ls []*Limiter
			for _, i := range members {
				l, err := client.Limiter(names[i])
				if i == 2 {
					l, err = client.LimiterWithRate(names[i], x.rate(t))
				}
				check(t, err)
				ls = append(ls, l)
			}
			q := newScriptQueue(ls...)
			q.calm = x.calm
			x.queues = append(x.queues, &tracedQueue{scriptQueue: q, lastSeen: make([]int64, len(ls))})
		}
	}
	if rapid.IntRange(0, 4).Draw(t, "crowd") == 0 {
		x.crowd(t)
	}
	return x
}

// crowd fills the first limiter's log as a busy fleet would have.
func (x *trace) crowd(t *rapid.T) {
	ctx := context.Background()
	n := rapid.Int64Range(240, 600).Draw(t, "entries")
	r := Rate{Permits: n + rapid.Int64Range(0, 50).Draw(t, "spare"), Interval: 2 * time.Second}
	check(t, x.operator[0].SetRate(ctx, r))
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	now := x.s.now(t)
	var zs []redis.Z
	times := map[int64]bool{}
	for range n {
		at := now - random.Int64N(1_500_000) + random.Int64N(2)*random.Int64N(1_000_000)
		if times[at] {
			continue
		}
		times[at] = true
		zs = append(zs, redis.Z{Score: float64(at) / 1000, Member: ownMember(at, 1)})
	}
	key := x.operator[0].keys()[2]
	for _, at := range slices.Sorted(maps.Keys(times)) {
		x.truth[key] = append(x.truth[key], entry{at, 1})
	}
	check(t, x.s.rdb.ZAdd(ctx, key, zs...).Err())
}

func (x *trace) rate(t *rapid.T) Rate {
	longest := 2000
	if !x.s.fake {
		longest = 40
	}
	interval := time.Duration(rapid.IntRange(1, longest).Draw(t, "interval")) * time.Millisecond
	r := Rate{
		Type:     RateType(rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "type")),
		Permits:  rapid.Int64Range(1, 30).Draw(t, "permits"),
		Interval: interval,
		Smooth:   rapid.IntRange(0, 5).Draw(t, "smooth") == 0,
		Window:   Window(rapid.SampledFrom([]int{0, 0, 0, 0, 1}).Draw(t, "window")),
		Guard:    rapid.SampledFrom([]time.Duration{0, 0, -1, interval / 4, time.Microsecond}).Draw(t, "guard"),
	}
	if x.calm {
		r.Smooth, r.Window, r.Permits = false, Sliding, 10*r.Permits
	}
	if r.Window == Calendar {
		r.Offset = rapid.SampledFrom([]time.Duration{0, interval / 3, interval - time.Microsecond}).Draw(t, "offset").Truncate(time.Microsecond)
	}
	if x.s.fake && !x.calm && rapid.IntRange(0, 5).Draw(t, "keep") == 0 {
		r.KeepAlive = interval * time.Duration(rapid.IntRange(1, 3).Draw(t, "intervals"))
	}
	return r
}

func (x *trace) queue(t *rapid.T) *tracedQueue { return rapid.SampledFrom(x.queues).Draw(t, "queue") }

func (x *trace) limiter(t *rapid.T) *Limiter { return rapid.SampledFrom(x.operator).Draw(t, "limiter") }

// pass lets time go by: nothing, an instant, or up to some intervals.
func (x *trace) pass(t *rapid.T) {
	us := rapid.SampledFrom([]int{1, 50, 3_000, 100_000, 1_000_000, 5_000_000}).Draw(t, "scale")
	if !x.s.fake {
		us = min(us, 3_000)
	}
	x.s.pass(time.Duration(rapid.IntRange(1, us).Draw(t, "us")) * time.Microsecond)
}

// batch draws what a queue asks for.
func (x *trace) batch(t *rapid.T, q *tracedQueue, states []state) batchCall {
	var b batchCall
	horizon := int64(1) << 40
	least := int64(30)
	simple := x.calm && rapid.Bool().Draw(t, "simple")
	for i, s := range states {
		b.refresh = append(b.refresh, !simple && rapid.IntRange(0, 9).Draw(t, "refresh") == 0)
		b.ahead = append(b.ahead, rapid.SampledFrom([]int64{0, 0, 3}).Draw(t, "ahead"))
		b.releases = append(b.releases, 0)
		if i == 0 && !simple && rapid.IntRange(0, 9).Draw(t, "release") == 0 {
			b.releases[0] = rapid.Int64Range(1, 10).Draw(t, "n")
		}
		if s.exists {
			horizon = min(horizon, max(s.model.interval, 1_000_000))
			least = min(least, s.model.rate)
		} else {
			horizon = 1_000_000
		}
	}
	if simple {
		b.asks = append(b.asks, x.drawAsk(t, len(states), horizon, least))
		return b
	}
	for range rapid.IntRange(0, min(2, len(q.held))).Draw(t, "returns") {
		i := rapid.IntRange(0, len(q.held)-1).Draw(t, "reservation")
		back := q.held[i]
		back.kind = rapid.SampledFrom([]script.ReturnKind{script.Unused, script.Exchanged}).Draw(t, "kind")
		back.announce = rapid.Int64Range(0, 1<<len(states)-1).Draw(t, "announce")
		b.returns = append(b.returns, back)
		q.held = slices.Delete(q.held, i, i+1)
	}
	for range rapid.IntRange(0, 3).Draw(t, "asks") {
		b.asks = append(b.asks, x.drawAsk(t, len(states), horizon, least))
	}
	return b
}

func (x *trace) drawAsk(t *rapid.T, members int, horizon, least int64) ask {
	a := ask{count: rapid.Int64Range(1, 6).Draw(t, "count"), near: horizon}
	if rapid.IntRange(0, 9).Draw(t, "prefetch") == 0 {
		a.longest = -1
		a.ns = slices.Repeat([]int64{1}, members)
		return a
	}
	for range members {
		n := rapid.Int64Range(1, min(least, 5)).Draw(t, "n")
		if rapid.IntRange(0, 9).Draw(t, "big") == 0 {
			n = rapid.Int64Range(1, least+1).Draw(t, "n")
		}
		a.ns = append(a.ns, n)
	}
	a.longest = rapid.SampledFrom([]int64{0, 1, horizon / 10, horizon, maxInterval.Microseconds()}).Draw(t, "longest")
	a.reach = min(a.longest, rapid.SampledFrom([]int64{horizon, horizon, horizon / 3}).Draw(t, "reach"))
	a.near = rapid.SampledFrom([]int64{a.longest, a.longest, a.longest, horizon / 2}).Draw(t, "near")
	a.lead = rapid.SampledFrom([]int64{0, 0, 0, 700}).Draw(t, "lead")
	return a
}
