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
)

// server is a Redis under test and its time.
type server struct {
	rdb  *redis.Client
	pass func(time.Duration) // lets time go by
	fake bool                // its clock stands still otherwise
}

// fakeServer is a miniredis whose clock moves only when it is told to, with the TTLs.
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
	s.valueKey, s.permits = l.keys[1], l.keys[2]
	if s.perClient {
		s.valueKey, s.permits = l.keys[3], l.keys[4]
	}
	p := rdb.TxPipeline() // at one moment: limits of a millisecond expire in between
	zs := p.ZRangeWithScores(ctx, s.permits, 0, -1)
	value := p.Get(ctx, s.valueKey)
	seen := p.ZScore(ctx, l.keys[5], l.c.id)
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

// giveBack takes up to n permits out of the records that hold the grant made for
// time at, or what was taken for it, and returns how many.
func giveBack(rs []record, span, at, n int64) (taken int64) {
	end := boundary(span, at+1) - 1
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

// releaseOldest takes n permits off the oldest records that are not ahead.
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

// giving is a place that a queue returns.
type giving struct {
	at         int64
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
func (b batchCall) plain(config []settings) bool {
	plain := len(b.returns) == 0 && len(b.asks) > 0 && len(b.asks) < 3 && b.asks[0].longest >= 0 && b.asks[0].lead == 0
	for i, n := range b.releases {
		plain = plain && n == 0 && config[i].plain && !b.refresh[i]
	}
	return plain && (len(b.asks) == 1 || b.asks[1].longest < 0)
}

// scriptQueue calls acquire.lua as the queue of a client's limiters does.
type scriptQueue struct {
	limiters []*Limiter
	keys     []string
	seq      uint64
	config   []settings
	held     []giving

	args    []any     // of the latest call
	fast    *fastCall // if that may do
	calm    bool      // nobody else changes the limiters: fast.lua need not look each time
	looked  time.Time // when it last did
	short   bool      // it did
	members int
	runs    int
	reply   string
}

func newScriptQueue(ls ...*Limiter) *scriptQueue {
	q := newQueue(ls[0].c, ls)
	return &scriptQueue{limiters: ls, keys: q.keys, config: make([]settings, len(ls))}
}

// send makes the next call; resend makes the latest again.
func (q *scriptQueue) send(tb fataler, rdb *redis.Client, b batchCall) batchReply {
	tb.Helper()
	q.seq++
	var ns numbers
	ns.add(0, 0, 0, int64(len(q.limiters)))
	for i := range q.limiters {
		ns.add(q.config[i].epoch, one(b.refresh[i]), b.ahead[i])
	}
	ns.add(int64(len(b.returns)))
	for _, r := range b.returns {
		ns.add(r.at)
		ns.add(r.epochs...)
		ns.add(r.ns...)
	}
	ns.add(b.releases...)
	ns.add(int64(len(b.asks)))
	for _, a := range b.asks {
		ns.add(a.longest, a.reach, a.near, a.lead, a.count)
		ns.add(a.ns...)
	}
	q.args = ns.arguments(batchNo(q.seq), q.limiters[0].c.id, q.config, q.limiters)
	q.members, q.runs, q.fast = len(q.limiters), len(b.asks), nil
	if b.plain(q.config) {
		var stock int64
		if len(b.asks) > 1 {
			stock = b.asks[1].count
		}
		now, err := rdb.Time(context.Background()).Result()
		check(tb, err)
		look := !q.calm || now.Sub(q.looked).Abs() >= freshFor
		if look {
			q.looked = now
		}
		q.fast = newFastCall(q.keys[0], q.limiters, q.config, batchNo(q.seq), b.asks[0].count, stock, 0, look, b.asks[0].ns)
	}
	return q.resend(tb, rdb)
}

func (q *scriptQueue) resend(tb fataler, rdb *redis.Client) batchReply {
	tb.Helper()
	ctx := context.Background()
	var reply any = int64(0)
	if q.fast != nil {
		q.fast.args[0] = q.args[0]
		var err error
		reply, err = fastScript.Run(ctx, rdb, q.fast.keys, q.fast.args...).Result()
		check(tb, err)
	}
	_, declined := reply.(int64)
	if q.short = !declined; declined {
		var err error
		reply, err = acquireScript.Run(ctx, rdb, q.keys, q.args...).Result()
		check(tb, err)
	}
	if q.short {
		reply = q.fast.reply(reply)
	}
	r, err := decodeBatch(reply, q.members, q.runs)
	check(tb, err)
	if r.status == statusAll {
		q.fast.granted(&r)
	}
	_, q.reply, _ = strings.Cut(reply.(string), " ")
	return r
}

// epochs are those of the configurations last seen.
func (q *scriptQueue) epochs() []int64 {
	epochs := make([]int64, len(q.config))
	for i, s := range q.config {
		epochs[i] = s.epoch
	}
	return epochs
}

// learn takes up what a reply says of the configurations.
func (q *scriptQueue) learn(r batchReply) {
	if r.status != statusOK {
		return
	}
	for i, s := range r.changed {
		if s != nil {
			q.config[i] = *s
		}
	}
}

// describe is a call for a failure's message.
func (q *scriptQueue) describe() string {
	names := make([]string, len(q.limiters))
	for i, l := range q.limiters {
		names[i] = l.name
	}
	return fmt.Sprintf("client %s, %s: args %v: reply %s", q.limiters[0].c.id, slices.Sorted(slices.Values(names)), q.args, q.reply)
}
