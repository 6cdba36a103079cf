package throttle

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/oracle"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// member is a limit as a script finds it.
type simulatedMember struct {
	sl      *simulatedLimit
	exists  bool
	expires bool          // the whole limit, some time
	lives   time.Duration // for how long, if it expires
	created bool          // by this call
	ttl     time.Duration
	limit   oracle.Limit
	epoch   int64
	reset   int64
	seen    int64 // when this client was seen, as Redis has it
	far     int64 // up to where reservations stay when it changes, if that is more than near
	key     string
	log     oracle.Log // with entries that no longer count
	entries int
	value   string
}

// view is what the oracle sees of one script call.
type view struct {
	s        *simulation
	p        *simulatedProcess
	m        message
	repeated bool
	now      int64
	names    []string
	before   []simulatedMember
}

// names are the limits that a call is about.
func (m message) names() (names []string) {
	switch m.script {
	case "acquire":
		for i := 1; i < len(m.keys); i += script.Span {
			names = append(names, m.keys[i])
		}
	case "fast":
		n := (len(m.keys) - 1) / 3
		names = m.keys[1+n : 1+2*n]
	case "many":
		for i := 2; i < len(m.keys); i += 3 {
			names = append(names, m.keys[i])
		}
	case "epoch":
		names = m.keys
	default:
		names = m.keys[:1]
	}
	return names
}

// viewBefore reads the logs before a call.
func (s *simulation) viewBefore(p *simulatedProcess, m message, repeated bool) *view {
	v := &view{s: s, p: p, m: m, repeated: repeated, now: s.now(), names: m.names()}
	v.before = v.members()
	for _, b := range v.before {
		b.sl.gone = b.sl.gone || b.sl.there && !b.exists || m.script == "delete" || m.script == "expire"
		v.untouched(b)
	}
	return v
}

func (v *view) members() (ms []simulatedMember) {
	for _, name := range v.names {
		ms = append(ms, v.s.member(name, v.p.name))
	}
	return ms
}

// member reads a limit out of Redis, not through its scripts.
func (s *simulation) member(name, client string) simulatedMember {
	num := func(field string) int64 { n, _ := strconv.ParseInt(s.redis.HGet(name, field), 10, 64); return n }
	m := simulatedMember{exists: s.redis.HGet(name, "rate") != "", epoch: num("epoch"), reset: num("reset")}
	m.sl = s.limits[slices.IndexFunc(s.limits, func(l *simulatedLimit) bool { return l.name == name })]
	m.limit = oracle.Limit{
		Permits: num("rate"), Interval: 1000 * num("interval"), Guard: num("guard"), PerClient: num("type") == 1, Smooth: num("smooth") == 1,
		Calendar: num("window") == 1, Offset: num("offset"), Pause: num("pause"),
	}
	m.lives = s.redis.TTL(name)
	m.expires = m.lives > 0
	keys := script.KeysOf(name, client)
	value := keys[1]
	if m.key = keys[2]; m.limit.PerClient {
		value, m.key = keys[3], keys[4]
	}
	m.value, _ = s.redis.Get(value)
	seen, _ := s.redis.ZScore(keys[5], client)
	m.seen, m.far = int64(seen), num("far")
	m.log, m.entries = s.log(m.key)
	m.ttl = s.redis.TTL(m.key)
	return m
}

// log reads a log.
func (s *simulation) log(key string) (log oracle.Log, entries int) {
	set, _ := s.redis.SortedSet(key)
	at := make(map[int64]int64, len(set)) // there may be several of one time
	for member, score := range set {
		at[int64(score*1000+0.5)] += parseMember(member)
	}
	for _, t := range slices.Sorted(maps.Keys(at)) {
		log = append(log, oracle.Entry{At: t, Permits: at[t]})
	}
	return log, len(set)
}

// untouched checks that a log is as the latest script left it: what still counts does not
// disappear, unless the whole limit expires.
func (v *view) untouched(m simulatedMember) {
	last, known := v.s.left[m.key]
	if !known || !m.exists || m.expires || v.s.steps {
		return
	}
	want, got := m.live(last, v.now), m.live(m.log, v.now)
	if m.limit.PerClient && len(m.log) == 0 { // it may have expired, with reservations that a change had dropped
		want = want.Until(m.epoch + max(near, m.far))
	}
	if why := m.limit.Kept(want, got, v.now, false); why != "" {
		v.broken("nothing leaks", "%s: %s, though no script has run meanwhile", m.sl.name, why)
	}
}

// live is the part of a log that counts.
func (m simulatedMember) live(log oracle.Log, now int64) oracle.Log {
	return log.After(m.limit.Cutoff(now))
}

func (v *view) broken(promise, format string, args ...any) {
	var was strings.Builder
	for _, m := range v.before {
		log := fmt.Sprint(m.live(m.log, v.now))
		if len(log) > 1000 {
			log = log[:1000] + "..."
		}
		fmt.Fprintf(&was, "\n%s was there: %v, may expire: %v, epoch %d, %+v, value %q, %d entries, of which count %s", m.sl.name, m.exists, m.expires, m.epoch, m.limit, m.value, m.entries, log)
	}
	v.s.broken(promise, format+"\n%v now %d%s", append(args, v.m, v.now, was.String())...)
}

// judge reads the logs after a call and checks what it did.
func (v *view) judge(reply any, err error) {
	after := v.members()
	defer v.remember(after)
	if err != nil {
		v.s.note("%s %s: %v", v.p.name, v.m.script, err)
		v.broken("no script fails", "%v", err)
		return
	}
	switch v.m.script {
	case "acquire":
		v.judgeBatch(reply, after)
	case "fast":
		v.judgeFast(reply, after)
	case "many":
		v.judgeMany(reply.(string), after)
	case "set", "pause", "expire", "delete":
		v.s.note("%s %s%s of %s: %v -> %v", v.p.name, again(v.repeated), v.m.script, v.names[0], v.m.args, reply)
		v.judgeChange(after)
	default:
		v.same(after)
	}
}

// comesFor is how long after its permits were due, in us, somebody may come for them: a reply was
// on its way, or the caller did something else first.
const comesFor = 5_000_000

// remember notes what a call left behind, and what it changed for callers.
func (v *view) remember(after []simulatedMember) {
	for i, m := range after {
		b := v.before[i]
		if n := len(m.sl.pauses); n > 0 && m.sl.pauses[n-1].until != m.limit.Pause || n == 0 && m.limit.Pause > 0 {
			m.sl.pauses = append(m.sl.pauses, pauseChange{time.Now().UnixMicro(), m.limit.Pause})
		}
		m.sl.there = m.sl.there || m.exists
		if m.epoch != b.epoch {
			m.sl.stood += m.log.After(v.now - comesFor).Sum()
			m.sl.lost = max(m.sl.lost, m.sl.granted-v.s.usedOf(m.sl))
		}
		forgotten := !m.exists || !b.exists || b.created || m.reset != b.reset
		if forgotten {
			for _, key := range v.s.logsOf(m.sl) {
				delete(v.s.left, key)
			}
		}
		v.s.left[m.key] = m.log
		if last := m.sl.changes[len(m.sl.changes)-1].limit; forgotten || last != unpaused(m.limit) {
			m.sl.changes = append(m.sl.changes, rateChange{time.Now().UnixMicro(), unpaused(m.limit)})
		}
	}
}

func unpaused(l oracle.Limit) oracle.Limit {
	l.Pause = 0
	return l
}

func again(repeated bool) string {
	if repeated {
		return "AGAIN "
	}
	return ""
}

// same checks that a call left all logs as they were.
func (v *view) same(after []simulatedMember) {
	for i, b := range v.before {
		if !slices.Equal(b.log, after[i].log) {
			v.broken("nothing leaks", "%s: the log was %v and is %v", b.sl.name, b.log, after[i].log)
		}
	}
}

// judgeFast checks what fast.lua granted.
func (v *view) judgeFast(reply any, after []simulatedMember) {
	text, granted := reply.(string)
	if !granted {
		v.same(after)
		return
	}
	now, err := strconv.ParseInt(text, 10, 64)
	check(v.s, err)
	n := len(v.before)
	half := len(v.m.args) > 2+3*n && fmt.Sprint(v.m.args[2+3*n]) == "true"
	var want []oracle.Log
	for i, b := range v.before {
		permits := v.m.args[3+3*i].(int64)
		log := b.live(b.log, now)
		if p := oracle.Plan(oracle.Ask{Limit: b.limit, Log: log, Permits: permits}); !p.Fits(now) && !v.s.steps {
			v.broken("exact", "%s: %d permits granted at once, and there is no room: %v", b.sl.name, permits, log)
		}
		if log = log.With(now, permits); half && log.Sum() > b.limit.Permits-b.limit.Permits/2 && !v.s.steps {
			v.broken("half stays free", "%s: %d of %d used with what was prefetched", b.sl.name, log.Sum(), b.limit.Permits)
		}
		want = append(want, log)
		if !half {
			b.sl.granted += permits
		}
	}
	v.s.note("%s %sfast %v: granted %v of %v", v.p.name, again(v.repeated), v.m.args[0], v.granted(), v.names)
	v.once(true, text)
	v.audit(after, want, now)
}

// granted are the permits that fast.lua was asked for.
func (v *view) granted() (ns []any) {
	for i := range v.before {
		ns = append(ns, v.m.args[3+3*i])
	}
	return ns
}

// batch names a batch of a queue.
func (v *view) batch() string { return v.m.keys[0] + " " + fmt.Sprint(v.m.args[0]) }

// once checks that what a batch changed is changed once.
func (v *view) once(changed bool, reply string) {
	if !changed {
		return
	}
	key := v.batch()
	expires := v.before[0].sl.gone // a limiter that disappears takes its replies with it, those of its groups, too: a repeat is charged to a new one
	// A clock that is set forward by an hour ends the time of the replies, too.
	if first, done := v.s.served[key]; done && !expires && !v.s.steps {
		v.broken("a repeat is harmless", "batch %v was served twice: %s, and before %s", v.m.args[0], reply, first)
	}
	v.s.served[key] = reply
}

// audit checks what a call left in Redis.
func (v *view) audit(after []simulatedMember, want []oracle.Log, now int64) {
	for i, a := range after {
		if v.s.steps {
			return
		}
		b := v.before[i]
		if !b.exists && !a.exists {
			continue // what only gives back creates nothing
		}
		if why := b.limit.Kept(b.live(want[i], now), b.live(a.log, now), now, b.entries > 256); why != "" {
			v.broken("nothing leaks", "%s: %s\nwant %v\ngot  %v", b.sl.name, why, b.live(want[i], now), b.live(a.log, now))
		}
		if value, err := strconv.ParseInt(a.value, 10, 64); err != nil || value != a.limit.Permits-a.log.Sum() {
			v.broken("the value is what the log leaves", "%s: value %q, rate %d, the log holds %d", b.sl.name, a.value, a.limit.Permits, a.log.Sum())
		}
		if a.entries > 1024+256 {
			v.broken("bounded", "%s: %d entries", b.sl.name, a.entries)
		}
	}
}

// readBatchCall reads what acquire.lua is asked: the script's header says what is where.
func readBatchCall(args []any) batchCall {
	var b batchCall
	words := strings.Fields(args[2].(string))
	next := func() int64 {
		n, err := strconv.ParseInt(words[0], 10, 64)
		if err != nil {
			panic(err)
		}
		words = words[1:]
		return n
	}
	several := func(n int64) (ns []int64) {
		for range n {
			ns = append(ns, next())
		}
		return ns
	}
	several(3)
	b.far = next()
	members := next()
	for range members {
		b.seen, b.refresh, b.ahead = append(b.seen, next()), append(b.refresh, next() == 1), append(b.ahead, next())
	}
	for range next() {
		at, code := next(), next()
		b.returns = append(b.returns, giving{at: at, kind: script.ReturnKind(code % 4), announce: code / 4, epochs: several(members), ns: several(members)})
	}
	b.releases = several(members)
	for range next() {
		b.asks = append(b.asks, ask{longest: next(), reach: next(), near: next(), lead: next(), count: next(), ns: several(members)})
	}
	return b
}
