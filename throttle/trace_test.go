package throttle

import (
	"context"
	"math"
	"pgregory.net/rapid"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

func (x *trace) states(t fataler, q *tracedQueue) []state {
	var states []state
	for _, l := range q.limiters {
		states = append(states, readState(t, x.s.rdb, l))
	}
	return states
}

func (x *trace) ask(t *rapid.T) {
	q := x.queue(t)
	before := x.states(t, q)
	q.last, q.lastSeen = x.batch(t, q, before), q.epochs()
	r := q.send(t, x.s.rdb, q.last)
	x.judge(t, q, before, r)
	if r.Status == script.OK {
		x.hold(q, r)
	}
	q.learn(r)
}

// hold notes the reservations in a reply, which may be returned.
func (x *trace) hold(q *tracedQueue, r script.Reply) {
	for i, run := range r.Runs {
		for _, g := range run.Grants {
			ns := q.last.asks[i].ns
			for range g.Count {
				q.held = append(q.held, giving{at: int64(r.Base) + g.Offset, epochs: r.Epochs, ns: ns})
			}
		}
	}
}

// lose makes a call whose reply never comes: what it granted is used up.
func (x *trace) lose(t *rapid.T) {
	q := x.queue(t)
	before := x.states(t, q)
	q.last, q.lastSeen = x.batch(t, q, before), q.epochs()
	x.judge(t, q, before, q.send(t, x.s.rdb, q.last))
}

// repeat makes the latest call again: the reply is the same, and nothing is charged.
func (x *trace) repeat(t *rapid.T) {
	q := x.queue(t)
	if q.args == nil {
		return
	}
	before := x.states(t, q)
	known := x.known(q)
	reply := q.reply
	r := q.resend(t, x.s.rdb)
	switch {
	case known:
		if q.reply != reply {
			t.Fatalf("repeated call: was told %s before\n%s", reply, q.describe())
		}
		x.same(t, q, before)
	case int64(r.Now) < q.keep:
		t.Fatalf("the reply to the latest call was forgotten\n%s", q.describe())
	default: // it had done nothing that lasts, or was long ago
		x.judge(t, q, before, r)
	}
}

// known reports whether Redis has the reply to the queue's latest call.
func (x *trace) known(q *tracedQueue) bool {
	return strings.HasPrefix(x.s.rdb.Get(context.Background(), q.keys[0]).Val(), script.BatchNo(q.seq)+" ")
}

// repeatOld makes a call with an older number than the one Redis knows.
func (x *trace) repeatOld(t *rapid.T) {
	q := x.queue(t)
	if q.args == nil || !x.known(q) {
		return
	}
	before := x.states(t, q)
	reply, seq := q.reply, q.args[0]
	q.args[0] = script.BatchNo(q.seq - 1)
	if r := q.resend(t, x.s.rdb); r.Status != script.Old {
		t.Fatalf("a call older than the last was served\n%s", q.describe())
	}
	x.same(t, q, before)
	q.args[0], q.reply = seq, reply
}

func (x *trace) same(t fataler, q *tracedQueue, before []state) {
	for i, after := range x.states(t, q) {
		if !slices.Equal(after.records, before[i].records) || after.value != before[i].value {
			if x.s.fake {
				t.Fatalf("repeated call changed limiter %d: %+v, was %+v\n%s", i, after, before[i], q.describe())
			}
		}
	}
}

// judge compares what a call did with what the model says it should have.
func (x *trace) judge(t fataler, q *tracedQueue, before []state, r script.Reply) {
	q.keep = 0
	after := x.states(t, q)
	for i, s := range before {
		if s.exists || q.limiters[i].member.Create != "" {
			continue
		}
		if r.Status != script.Missing || r.Member != i {
			t.Fatalf("limiter %d is not initialized\n%s", i, q.describe())
		}
		return
	}
	if r.Status != script.OK {
		t.Fatalf("status %d\n%s", r.Status, q.describe())
	}
	var models []*model
	grid := false
	exact, changed := true, false
	records := make([][]record, len(before))
	for i, s := range before {
		if !s.exists {
			s.model, s.perClient, s.epoch, s.reset, s.permits = after[i].model, after[i].perClient, after[i].epoch, after[i].reset, after[i].permits
			before[i] = s
			x.truth[s.permits] = s.with(s.records).log // what expired with the limiter is forgotten
		}
		records[i] = x.current(q, i, s, int64(r.Now))
		if len(s.records) > 256 {
			grid = true
			exact = exact && !s.model.smooth && len(s.records) <= 512
		}
		expired := len(s.records) - len(live(s.records, s.model.cutoff(int64(r.Now))))
		exact = exact && expired <= 256
		x.truth[s.permits] = slices.DeleteFunc(x.truth[s.permits], func(e entry) bool { return e.at <= s.model.cutoff(int64(r.Now)) })
	}
	for _, g := range q.last.returns {
		for i, s := range before {
			if g.epochs[i] == s.epoch && g.at > s.model.cutoff(int64(r.Now)) {
				taken := giveBack(records[i], s.model.span(), g.at, g.ns[i], int64(r.Now))
				changed = changed || taken > 0
				x.truth[s.permits] = takeFrom(x.truth[s.permits], g.at, taken)
			}
		}
	}
	for i, s := range before {
		if n := q.last.releases[i]; n > 0 {
			changed = true
			records[i] = releaseOldest(records[i], int64(r.Now), n)
			x.truth[s.permits] = takeFrom(x.truth[s.permits], math.MinInt64, n)
		}
		models = append(models, s.with(records[i]))
	}
	for _, a := range q.last.asks {
		exact = exact && a.near >= a.longest
	}
	x.seen(exact, grid, q.short, r)
	if exact {
		var expected []*model
		for i, s := range before {
			m := s.with(records[i])
			m.crowded = len(s.records) > 256
			expected = append(expected, m)
		}
		x.compare(t, q, serve(expected, q.last.asks, int64(r.Now), r.Runs), r)
	}
	for i, run := range r.Runs {
		for _, g := range run.Grants {
			changed = true
			for range g.Count {
				charge(models, int64(r.Base)+g.Offset, q.last.asks[i].ns)
			}
			for k, s := range before {
				n := g.Count * q.last.asks[i].ns[k]
				x.promise(t, q, s, int64(r.Base)+g.Offset, n)
			}
		}
	}
	for i := range after {
		x.audit(t, q, i, before[i], after[i], models[i], int64(r.Now))
		if after[i].nameTTL >= 0 {
			changed = false
		}
	}
	if changed {
		q.keep = int64(r.Now) + 9_000_000
	}
}

// current are the records that the script uses: those that live, less the reservations that a
// change of configuration has dropped.
func (x *trace) current(q *tracedQueue, i int, s state, now int64) []record {
	rs := live(s.records, s.model.cutoff(now))
	if s.perClient && (q.last.refresh[i] || q.lastSeen[i] != s.epoch) {
		switch {
		case s.checkedIn < s.reset:
			return nil
		case s.checkedIn < s.epoch:
			rs = slices.DeleteFunc(rs, func(r record) bool { return r.at > s.epoch+near })
		}
	}
	return rs
}

func live(rs []record, cutoff int64) []record {
	return slices.DeleteFunc(slices.Clone(rs), func(r record) bool { return r.at <= cutoff })
}

// takeFrom takes n permits out of the entries from at on.
func takeFrom(es []entry, at, n int64) []entry {
	for i := range es {
		if es[i].at >= at {
			x := min(n, es[i].n)
			es[i].n -= x
			n -= x
		}
	}
	return slices.DeleteFunc(es, func(e entry) bool { return e.n == 0 })
}

func (x *trace) compare(t fataler, q *tracedQueue, fates []fate, r script.Reply) {
	for i, f := range fates {
		run := r.Runs[i]
		var times []int64
		for _, g := range run.Grants {
			times = append(times, slices.Repeat([]int64{int64(r.Base) + g.Offset}, int(g.Count))...)
		}
		ok := slices.Equal(times, f.times) && run.Rest == f.rest && run.Wait == time.Duration(f.wait)*time.Microsecond
		if run.Rest != script.None {
			ok = ok && slices.Contains(f.members, run.Member)
		}
		if !ok {
			t.Fatalf("ask %d %+v: got %v, rest %d wait %v member %d; want %v, rest %d wait %v of %v (now %d)\n%s", i, q.last.asks[i],
				offsets(times, int64(r.Now)), run.Rest, run.Wait, run.Member, offsets(f.times, int64(r.Now)), f.rest, time.Duration(f.wait)*time.Microsecond, f.members, int64(r.Now), q.describe())
		}
	}
}

// seen counts what a trace has come across, for the figures at the end.
func (x *trace) seen(exact, grid, short bool, r script.Reply) {
	x.count["calls"]++
	if short {
		x.count["by fast.lua"]++
	}
	if exact {
		x.count["predicted"]++
	}
	if grid {
		x.count["in buckets"]++
	}
	for _, run := range r.Runs {
		for _, g := range run.Grants {
			if int64(r.Base)+g.Offset > int64(r.Now) {
				x.count["reservations"]++
			} else {
				x.count["grants now"]++
			}
		}
		x.count[[]string{"served", "denied", "over the rate", "held"}[run.Rest]]++
	}
}

func offsets(times []int64, now int64) []int64 {
	var os []int64
	for _, t := range times {
		os = append(os, t-now)
	}
	return os
}

// promise adds a grant to what may be used, and checks every window it is in.
func (x *trace) promise(t fataler, q *tracedQueue, s state, at, n int64) {
	m := s.model
	for _, e := range x.truth[s.permits] {
		m.add(e.at, e.n)
	}
	m.add(at, n)
	x.truth[s.permits] = m.log
	most := m.busiest(at)
	if m.calendar {
		most = m.sum(m.start(at)-1, m.start(at)+m.interval-1)
	}
	if most > m.rate {
		t.Fatalf("%d permits in a window of %d with the grant of %d at %d\nof %+v\n%s", most, m.rate, n, at, m.log, q.describe())
	}
}

// audit checks what a call left in Redis.
func (x *trace) audit(t fataler, q *tracedQueue, i int, before, after state, want *model, now int64) {
	var all, sum int64
	for _, r := range after.records {
		all += r.n
	}
	if !x.s.fake && before.perClient && len(after.records) == 0 {
		return // expired by now
	}
	got := after.with(live(after.records, before.model.cutoff(now)))
	want.log = slices.DeleteFunc(want.log, func(e entry) bool { return e.at <= before.model.cutoff(now) })
	for _, e := range want.log {
		sum += e.n
	}
	switch value, err := strconv.ParseInt(after.value, 10, 64); {
	case err != nil || value != after.model.rate-all:
		t.Fatalf("limiter %d: cached value %q, rate %d, the log has %d\n%s", i, after.value, after.model.rate, all, q.describe())
	}
	if len(before.records) <= 256 && !slices.Equal(got.log, want.log) {
		t.Fatalf("limiter %d: log %v, want %v (now %d)\n%s", i, got.log, want.log, now, q.describe())
	}
	if live := got.sum(math.MinInt64, math.MaxInt64); live != sum {
		t.Fatalf("limiter %d: the log has %d permits, want %d\n%s", i, live, sum, q.describe())
	}
	if len(after.records) > 1024+256 {
		t.Fatalf("limiter %d: %d entries\n%s", i, len(after.records), q.describe())
	}
	if err := auditFrontier(after, now); err != nil {
		t.Fatalf("limiter %d: %v\n%s", i, err, q.describe())
	}
	if len(got.log) == 0 {
		return
	}
	need := time.Duration(got.log[len(got.log)-1].at+before.model.span()-now) * time.Microsecond
	kept := after.nameTTL >= 0 || after.perClient
	for key, ttl := range map[string]time.Duration{"value": after.valueTTL, "permits": after.logTTL} {
		if kept && x.s.fake && ttl < need-time.Millisecond || !kept && ttl >= 0 || kept && ttl == -1 {
			t.Fatalf("limiter %d: the %s expire in %v; entries count for %v, the limiter itself expires in %v\n%s", i, key, ttl, need, after.nameTTL, q.describe())
		}
	}
}
