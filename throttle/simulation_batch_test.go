package throttle

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/oracle"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// judgeBatch checks what acquire.lua decided.
func (v *view) judgeBatch(reply any, after []simulatedMember) {
	call := readBatchCall(v.m.args)
	r, err := decodeReply(reply, len(v.before), len(call.asks))
	if err != nil {
		v.broken("no script fails", "%v", err)
		return
	}
	v.s.note("%s %sacquire %v of %v: %s -> %s", v.p.name, again(v.repeated), v.m.args[0], v.names, describeCall(call), describeReply(r))
	if r.Status == script.Old && !v.repeated {
		if v.s.count["calls that came too late"]++; v.s.count["calls that came too late"] > 4*v.s.count["replies spoilt"] {
			v.broken("nobody is stopped by what makes no sense", "%d calls were too old", v.s.count["calls that came too late"])
		}
	}
	_, body, _ := strings.Cut(reply.(string), " ")
	if first, done := v.s.served[v.batch()]; done && (first == body || r.Status == script.All) || r.Status == script.Old || r.Status == script.Late {
		v.same(after)
		return
	}
	switch {
	case r.Status == script.Missing:
		if v.before[r.Member].exists {
			v.broken("no script fails", "%s is there", v.before[r.Member].sl.name)
		}
		return
	case r.Status != script.OK:
		v.broken("no script fails", "status %d", r.Status)
		return
	}
	d := &decision{view: v, call: call, r: r}
	for i := range v.before {
		if b := &v.before[i]; !b.exists { // created by this call
			if after[i].limit.PerClient { // a client's own log may have outlived the limit
				v.once(changes(&r, &call), body)
				for j := range v.before {
					v.before[j].sl.uncounted = true
				}
				return
			}
			log, entries := b.log, b.entries
			if b.ttl == 0 || b.ttl > time.Millisecond { // otherwise it is about to expire with the limit that had it
				log, entries = nil, 0
			}
			*b = after[i]
			b.log, b.entries, b.value, b.expires, b.created = log, entries, "", true, true
		}
		d.logs = append(d.logs, d.current(i))
		v.before[i].sl.crowded = v.before[i].sl.crowded || d.crowded(i)
	}
	changed := d.giveBack()
	for i := range r.Runs {
		changed = len(r.Runs[i].Grants) > 0 || changed
		d.run(i)
	}
	v.once(changed, body)
	v.audit(after, d.logs, int64(r.Now))
	v.s.count["judged"]++
}

// changes reports whether the call may have changed more than what expired.
func changes(r *script.Reply, call *batchCall) bool {
	granted := slices.ContainsFunc(r.Runs, func(run script.Outcome) bool { return len(run.Grants) > 0 })
	return granted || len(call.returns) > 0 || slices.ContainsFunc(call.releases, func(n int64) bool { return n > 0 })
}

// decision is one call of acquire.lua, judged step by step.
type decision struct {
	*view
	call    batchCall
	r       script.Reply
	logs    []oracle.Log // as they are after what was judged so far
	blocked bool         // an earlier request has to wait beyond the horizon
}

// current is the log of a member as the call finds it. A client forgets its own log if it has not
// been here since a reset, and its reservations if it has not been here since a change.
func (d *decision) current(i int) oracle.Log {
	b := d.before[i]
	log := b.live(b.log, int64(d.r.Now))
	seen := d.call.seen[i]
	if !b.limit.PerClient || seen == b.epoch {
		return log
	}
	switch {
	case b.seen < b.reset:
		return nil
	case b.seen < b.epoch:
		return log.Until(min(b.epoch, int64(d.r.Now)) + max(near, b.far, d.call.far))
	}
	return log
}

// giveBack takes back what was returned and released.
func (d *decision) giveBack() (changed bool) {
	for _, g := range d.call.returns {
		for i, b := range d.before {
			now, same := int64(d.r.Now), g.epochs[i] == b.epoch
			switch {
			case !same && g.kind != script.Came:
			case g.at > b.limit.Cutoff(now):
				var taken int64
				d.logs[i], taken = d.logs[i].TakeBack(b.limit, g.at, g.ns[i], now, !same)
				b.sl.granted -= taken
				changed = changed || taken > 0
			default: // it no longer counts
				b.sl.granted -= g.ns[i]
			}
		}
	}
	for i, n := range d.call.releases {
		if n > 0 {
			changed = true
			d.before[i].sl.granted -= d.logs[i].Sum()
			d.logs[i] = d.logs[i].Release(int64(d.r.Now), n)
			d.before[i].sl.granted += d.logs[i].Sum()
		}
	}
	return changed
}

// plan is when k requests of the ask can be granted together.
func (d *decision) plan(a ask, k int64) oracle.Rooms {
	var asks []oracle.Ask
	for i, b := range d.before {
		limit := b.limit
		limit.Smooth = limit.Smooth && !b.sl.crowded // in buckets the share of a bucket counts, for reservations that were granted then
		asks = append(asks, oracle.Ask{Limit: limit, Log: d.logs[i], Permits: k * a.ns[i], Buckets: d.crowded(i)})
	}
	return oracle.Plan(asks...)
}

func (d *decision) crowded(i int) bool { return d.before[i].entries > 256 }

func (d *decision) anyCrowded() bool {
	for i := range d.before {
		if d.crowded(i) {
			return true
		}
	}
	return false
}

// late reports whether a grant may be due later than the oracle can tell.
func (d *decision) late() bool {
	for _, b := range d.before {
		// In a log that this call merges, old entries count until the end of their part.
		if b.limit.Smooth && b.sl.crowded || b.entries > 512 {
			return true
		}
	}
	return d.s.steps
}

// run judges what became of equal requests.
func (d *decision) run(i int) {
	a, run, now := d.call.asks[i], d.r.Runs[i], int64(d.r.Now)
	for k, b := range d.before {
		if a.longest >= 0 && a.ns[k] > b.limit.Permits {
			if run.Rest != script.Exceeds || len(run.Grants) > 0 {
				d.broken("what can never be had is refused", "%s: %d of %d", b.sl.name, a.ns[k], b.limit.Permits)
			}
			return
		}
	}
	var times []int64
	given, from := int64(0), now+max(a.lead, 0)
	for _, g := range run.Grants {
		at := int64(d.r.Base) + g.Offset
		times = append(times, at)
		d.grant(a, g.Count, from, at)
		given, from = given+g.Count, at
		if g.Offset > a.reach && a.longest >= 0 {
			d.broken("nobody reserves beyond the horizon", "a reservation %v ahead, reach %v", micros(g.Offset), micros(a.reach))
		}
	}
	if !oracle.InOrder(times) {
		d.broken("in turn", "grants at %v", times)
	}
	if a.longest < 0 {
		return
	}
	if run.Rest == script.None {
		if given != a.count {
			d.broken("everybody gets an answer", "%d of %d", given, a.count)
		}
		return
	}
	d.rest(a, run, from)
}

// grant judges one grant, or several of the same time, and notes them.
func (d *decision) grant(a ask, count, from, at int64) {
	if !d.s.steps {
		if all := d.plan(a, count); !all.Fits(at) {
			d.broken("exact", "%d x %v granted %v ahead, where %s is full", count, a.ns, micros(at-int64(d.r.Now)), d.named(all.Full(at)))
		}
		if one := d.plan(a, 1); a.longest >= 0 && !d.late() {
			latest := one.Latest(from)
			if a.lead > 0 && d.anyCrowded() {
				// Known: what is asked for with a lead is rounded up to the end of a bucket, by
				// no more than the lead, even if the limit is not full before.
				latest = max(latest, one.Latest(one.Earliest(from)+a.lead))
			}
			if at > latest {
				d.broken("busy", "%v granted %v ahead; there was room %v ahead, and with buckets %v ahead", a.ns, micros(at-int64(d.r.Now)),
					micros(one.Earliest(from)-int64(d.r.Now)), micros(latest-int64(d.r.Now)))
			}
			d.s.count["grants"]++
			if at > int64(d.r.Now) {
				d.s.count["reservations"]++
			}
		}
	}
	for i := range d.before {
		d.logs[i] = d.logs[i].With(at, count*a.ns[i])
		if a.longest >= 0 {
			d.before[i].sl.granted += count * a.ns[i]
		}
	}
}

// rest judges the answer to those who got no permits.
func (d *decision) rest(a ask, run script.Outcome, from int64) {
	wait := run.Wait.Microseconds()
	held := run.Rest == script.Held
	reach := a.reach
	for _, b := range d.before {
		reach = min(reach, b.limit.Horizon()) // the process may know an older rate
	}
	beyond := wait > reach || d.blocked && a.longest > 0
	d.blocked = d.blocked || held
	if d.s.steps {
		return
	}
	d.s.count["denied or held"]++
	switch {
	case run.Rest == script.Exceeds:
		d.broken("what can be had is not refused", "%v", a.ns)
	case held != (wait <= a.longest):
		d.broken("busy", "a wait of %v, of at most %v: outcome %d", run.Wait, micros(a.longest), run.Rest)
	case !beyond && (wait <= a.near || d.r.Contenders < 2):
		d.broken("busy", "%v not granted though the wait is %v, reach %v, near %v, %d contend", a.ns, run.Wait, micros(a.reach), micros(a.near), d.r.Contenders)
	}
	one := d.plan(a, 1)
	at, earliest, latest := int64(d.r.Now)+wait, one.Earliest(from), one.Latest(from)
	if a.lead > 0 && d.anyCrowded() {
		latest = max(latest, one.Latest(earliest+a.lead)) // as in grant
	}
	if at < earliest || at > latest && !d.late() {
		d.broken("a wait is what it is said to be", "%v told %v; there is room in %v to %v", a.ns, run.Wait, micros(earliest-int64(d.r.Now)), micros(latest-int64(d.r.Now)))
	}
}

func (d *decision) named(is []int) (names []string) {
	for _, i := range is {
		names = append(names, d.names[i])
	}
	return names
}

// describeCall and describeReply are for people.
func describeCall(b batchCall) string {
	var s strings.Builder
	for _, g := range b.returns {
		fmt.Fprintf(&s, "returns %v of %d, ", g.ns, g.at)
	}
	for i, n := range b.releases {
		if n > 0 {
			fmt.Fprintf(&s, "releases %d of member %d, ", n, i)
		}
	}
	for _, a := range b.asks {
		fmt.Fprintf(&s, "%d x %v within %v (reach %v near %v lead %v); ", a.count, a.ns, micros(a.longest), micros(a.reach), micros(a.near), micros(a.lead))
	}
	return s.String()
}

func describeReply(r script.Reply) string {
	if r.Status != script.OK {
		return fmt.Sprintf("status %d", r.Status)
	}
	var s strings.Builder
	for _, run := range r.Runs {
		for _, g := range run.Grants {
			fmt.Fprintf(&s, "%d in %v ", g.Count, micros(g.Offset))
		}
		switch run.Rest {
		case script.Denied:
			fmt.Fprintf(&s, "denied, %v by member %d", run.Wait, run.Member)
		case script.Held:
			fmt.Fprintf(&s, "held, %v by member %d", run.Wait, run.Member)
		case script.Exceeds:
			s.WriteString("exceeds the rate")
		}
		s.WriteString("; ")
	}
	return s.String()
}
