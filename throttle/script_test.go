package throttle

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// server is a Redis under test and its time.
type server struct {
	rdb  *redis.Client
	pass func(time.Duration) // lets time go by
	fake bool                // its clock stands still otherwise
}

// fakeServer is a miniredis whose clock, with the TTLs, moves only when it is told to.
func fakeServer(tb testing.TB) server {
	m := miniredis.RunT(tb)
	now := time.Date(2026, 3, 4, 5, 6, 7, 89000, time.UTC)
	m.SetTime(now)
	m.ClockTTL(true)
	rdb := dial(tb, m.Addr())
	return server{rdb: rdb, fake: true, pass: func(d time.Duration) {
		now = now.Add(d.Truncate(time.Microsecond))
		m.SetTime(now)
	}}
}

// realServer is the redis-server at addr.
func realServer(tb testing.TB, addr string) server {
	return server{rdb: dial(tb, addr), pass: func(d time.Duration) { <-time.After(d) }}
}

func dial(tb testing.TB, addr string) *redis.Client {
	rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
	tb.Cleanup(func() { rdb.Close() })
	return rdb
}

// now is the server's clock in us.
func (s server) now(tb fataler) int64 {
	t, err := s.rdb.Time(context.Background()).Result()
	check(tb, err)
	return t.UnixMicro()
}

// fataler is what testing.TB and *rapid.T have in common here.
type fataler interface {
	Fatalf(format string, args ...any)
	Helper()
}

func check(tb fataler, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatalf("%v", err)
	}
}

// record is one entry of a log as Redis has it.
type record struct {
	at, n  int64
	member string
}

// parseMember reads a member as Redisson's clients do.
func parseMember(m string) int64 {
	if m == "" || len(m) != int(m[0])+5 {
		return 0
	}
	b := m[len(m)-4:]
	return int64(b[0]) | int64(b[1])<<8 | int64(b[2])<<16 | int64(b[3])<<24
}

// ownMember is how this package packs n permits at a time in us.
func ownMember(at, n int64) string {
	b := []byte{8}
	for shift := 56; shift >= 0; shift -= 8 {
		b = append(b, byte(at>>shift))
	}
	return string(append(b, byte(n), byte(n>>8), byte(n>>16), byte(n>>24)))
}

// state is a limiter as a client's script finds it in Redis.
type state struct {
	exists            bool
	model             model // without a log
	perClient         bool
	epoch, reset      int64
	checkedIn         int64
	records           []record
	value             string
	seal, frontier    string
	valueTTL, logTTL  time.Duration
	nameTTL           time.Duration
	valueKey, permits string
}

func readState(tb fataler, rdb *redis.Client, l *Limiter) state {
	tb.Helper()
	ctx := context.Background()
	h, err := rdb.HGetAll(ctx, l.name).Result()
	check(tb, err)
	num := func(field string) int64 { n, _ := strconv.ParseInt(h[field], 10, 64); return n }
	s := state{exists: h["rate"] != "", perClient: h["type"] == "1", epoch: num("epoch"), reset: num("reset"), seal: h["seal"], frontier: h["frontier"]}
	s.model = model{
		rate: num("rate"), interval: num("interval") * 1000, guard: num("guard"), offset: num("offset"),
		calendar: h["window"] == "1", smooth: h["smooth"] == "1", pause: num("pause"),
	}
	s.valueKey, s.permits = l.keys()[1], l.keys()[2]
	if s.perClient {
		s.valueKey, s.permits = l.keys()[3], l.keys()[4]
	}
	p := rdb.TxPipeline() // at one time: limits of a millisecond expire in between
	zs := p.ZRangeWithScores(ctx, s.permits, 0, -1)
	value := p.Get(ctx, s.valueKey)
	seen := p.ZScore(ctx, l.keys()[5], l.c.ID())
	ttls := []*redis.DurationCmd{p.PTTL(ctx, s.valueKey), p.PTTL(ctx, s.permits), p.PTTL(ctx, l.name)}
	if _, err := p.Exec(ctx); err != nil && err != redis.Nil {
		check(tb, err)
	}
	for _, z := range zs.Val() {
		m := z.Member.(string)
		s.records = append(s.records, record{int64(z.Score*1000 + 0.5), parseMember(m), m})
	}
	s.value, s.checkedIn = value.Val(), int64(seen.Val())
	s.valueTTL, s.logTTL, s.nameTTL = ttls[0].Val(), ttls[1].Val(), ttls[2].Val()
	return s
}

// with is the model with these records for a log.
func (s state) with(records []record) *model {
	m := s.model
	for _, r := range records {
		if r.n > 0 {
			m.add(r.at, r.n)
		}
	}
	return &m
}

// giveBack takes up to n permits out of the records that hold the grant made for time at, or with which it was merged by
// now, and returns how many.
func giveBack(rs []record, span, at, n, now int64) (taken int64) {
	end := min(boundary(span, at+1)-1, max(at, now))
	for i, r := range rs {
		if r.at >= at && r.at <= end && r.member == ownMember(r.at, r.n) {
			x := min(r.n, n-taken)
			rs[i].n -= x
			rs[i].member = ownMember(r.at, rs[i].n)
			taken += x
		}
	}
	return taken
}

// releaseOldest takes n permits off the oldest records that are not in the future.
func releaseOldest(rs []record, now, n int64) []record {
	for i := range rs {
		if rs[i].at <= now {
			x := min(n, rs[i].n)
			rs[i].n -= x
			n -= x
		}
	}
	return rs
}

// giving is a reservation that a queue returns.
type giving struct {
	at         int64
	kind       script.ReturnKind
	announce   int64
	epochs, ns []int64
}

// batchCall is one call of acquire.lua.
type batchCall struct {
	far      int64   // as it was read
	seen     []int64 // epochs, as they were read
	refresh  []bool
	ahead    []int64
	returns  []giving
	releases []int64
	asks     []ask
}

// plain reports whether the queue tries fast.lua first.
func (b batchCall) plain(config []script.Settings) bool {
	plain := len(b.returns) == 0 && len(b.asks) > 0 && len(b.asks) < 3 && b.asks[0].longest >= 0 && b.asks[0].lead == 0
	for i, n := range b.releases {
		plain = plain && n == 0 && config[i].Plain && !b.refresh[i]
	}
	return plain && (len(b.asks) == 1 || b.asks[1].longest < 0)
}

// scriptQueue calls acquire.lua as the queue of a client's limiters does.
type scriptQueue struct {
	limiters []*Limiter
	keys     []string
	seq      uint64
	config   []script.Settings
	held     []giving

	request *script.Request // the latest
	args    []any
	fast    *script.Short // if it may be tried
	calm    bool          // nobody else changes the limiters: fast.lua need not check each time
	checked time.Time     // when it last checked
	short   bool          // fast.lua served the latest request
	reply   string
}

func newScriptQueue(ls ...*Limiter) *scriptQueue {
	members := make([]script.Keys, len(ls))
	for i, l := range ls {
		members[i] = script.KeysOf(l.name, l.c.ID())
	}
	reply := fmt.Sprintf("%s:reply:test:%p", script.Prefix(ls[0].name), members)
	return &scriptQueue{limiters: ls, keys: script.RequestKeys(reply, members), config: make([]script.Settings, len(ls))}
}

// send makes the next call; resend makes the latest again.
func (q *scriptQueue) send(tb fataler, rdb *redis.Client, b batchCall) script.Reply {
	tb.Helper()
	q.seq++
	r := &script.Request{Keys: q.keys, No: script.BatchNo(q.seq), Client: q.limiters[0].c.ID(), Released: b.releases}
	for i, l := range q.limiters {
		r.Members = append(r.Members, script.Member{Settings: q.config[i], Create: l.member.Create, Refresh: b.refresh[i], Ahead: b.ahead[i]})
	}
	for _, g := range b.returns {
		r.Returns = append(r.Returns, script.Return{At: script.Remote(g.at), Kind: g.kind, Announce: g.announce, Epochs: g.epochs, Ns: g.ns})
	}
	for _, a := range b.asks {
		r.Runs = append(r.Runs, script.Run{
			Longest: micros(a.longest), Reach: micros(a.reach), Near: micros(a.near), Lead: micros(a.lead),
			Count: a.count, Ns: a.ns, Prefetch: a.longest < 0,
		})
	}
	q.request, q.args, q.fast = r, r.Args(), nil
	if b.plain(q.config) {
		now, err := rdb.Time(context.Background()).Result()
		check(tb, err)
		checks := script.Barely
		if !q.calm || now.Sub(q.checked).Abs() >= 100*time.Millisecond {
			q.checked, checks = now, script.Fields
		}
		q.fast = r.Short(0, 10*time.Second, checks, 0)
	}
	return q.resend(tb, rdb)
}

func (q *scriptQueue) resend(tb fataler, rdb *redis.Client) script.Reply {
	tb.Helper()
	ctx := context.Background()
	if q.fast != nil {
		keys, args := q.fast.Call()
		args[0] = q.args[0]
		reply, err := script.Fast.Run(ctx, rdb, keys, args...).Result()
		check(tb, err)
		r, declined, _, err := q.fast.Decode(reply)
		check(tb, err)
		if q.short = !declined; q.short {
			q.reply = fmt.Sprintf("%d %s", script.All, reply)
			return r
		}
	}
	q.short = false
	reply, err := script.Acquire.Run(ctx, rdb, q.keys, q.args...).Result()
	check(tb, err)
	r, err := q.request.Decode(reply)
	check(tb, err)
	if r.Status == script.All {
		q.fast.Repeated(&r)
	}
	_, q.reply, _ = strings.Cut(reply.(string), " ")
	return r
}

// epochs are the epochs of the configurations last seen.
func (q *scriptQueue) epochs() []int64 {
	epochs := make([]int64, len(q.config))
	for i, s := range q.config {
		epochs[i] = s.Epoch
	}
	return epochs
}

// learn takes what a reply says about the configurations.
func (q *scriptQueue) learn(r script.Reply) {
	if r.Status != script.OK {
		return
	}
	for i, s := range r.Changed {
		if s != nil {
			q.config[i] = *s
		}
	}
}

// describe is the latest call, for a failure's message.
func (q *scriptQueue) describe() string {
	names := make([]string, len(q.limiters))
	for i, l := range q.limiters {
		names[i] = l.name
	}
	return fmt.Sprintf("client %s, %s: args %v: reply %s", q.limiters[0].c.ID(), slices.Sorted(slices.Values(names)), q.args, q.reply)
}

// decodeReply reads a reply of acquire.lua to a call for so many members and runs.
func decodeReply(reply any, members, runs int) (script.Reply, error) {
	r := script.Request{Members: make([]script.Member, members), Runs: make([]script.Run, runs)}
	return r.Decode(reply)
}

// replyKey is where Redis keeps the latest reply to the waiters of a limiter. That reply begins
// with a batch's number, unlike the replies that guard changes.
func (b *bench) replyKey(l *Limiter) string {
	b.Helper()
	keys := b.rdb.Keys(b.Context(), script.Prefix(l.name)+":reply:*").Val()
	keys = slices.DeleteFunc(keys, func(key string) bool {
		no, _, _ := strings.Cut(b.rdb.Get(b.Context(), key).Val(), " ")
		return len(no) != len(script.BatchNo(0))
	})
	if len(keys) != 1 {
		b.Fatalf("replies in %q, want one", keys)
	}
	return keys[0]
}
