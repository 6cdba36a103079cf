package redisson_test

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redisson"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// used is what a log must hold, oldest first: permits and their age.
type used []struct {
	n   int64
	age time.Duration
}

func (u *used) sum() (n int64) {
	for _, e := range *u {
		n += e.n
	}
	return n
}

// pass makes the grants d older, and forgets those of an interval ago.
func (u *used) pass(d, interval time.Duration) {
	var live used
	for _, e := range *u {
		if e.age += d; e.age < interval {
			live = append(live, e)
		}
	}
	*u = live
}

// release takes n permits off the oldest grants.
func (u *used) release(n int64) {
	for len(*u) > 0 && n > 0 {
		x := min(n, (*u)[0].n)
		n -= x
		if (*u)[0].n -= x; (*u)[0].n == 0 {
			*u = (*u)[1:]
		}
	}
}

// Whoever acquires, and however long ago: with the guard off and nothing
// reserved, both know the same number of free permits.
func TestAvailablePermitsAgree(t *testing.T) {
	const permits, interval = 40, 3 * time.Hour
	q := share(t)
	java, ours := q.java(), []*throttle.Client{q.ours(), q.ours()}
	ctx := t.Context()
	for seed := range uint64(8) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			q := &quota{T: t, addr: q.addr, rdb: q.rdb}
			name, random := name(t), rand.New(rand.NewPCG(seed, 0))
			theirs := java.Limiter(name)
			mine := []*throttle.Limiter{limiter(t, ours[0], name), limiter(t, ours[1], name)}
			check(t, mine[0].SetRate(ctx, rate(permits, interval)))
			var u used
			take := func(n int64) bool {
				if u.sum()+n > permits {
					return false
				}
				u = append(u, struct {
					n   int64
					age time.Duration
				}{n: n})
				return true
			}
			for range 60 {
				n, l := 1+random.Int64N(12), mine[random.IntN(2)]
				switch random.IntN(5) {
				case 0, 1:
					want(t, "Java's tryAcquire", take(n))(theirs.TryAcquire(n, 0))
				case 2, 3:
					want(t, "Go's TryAcquire", take(n))(l.TryAcquire(ctx, n))
				case 4:
					if random.IntN(2) == 0 {
						u.release(n)
						check(t, l.Release(ctx, n))
						break
					}
					d := interval / 3 * time.Duration(1+random.IntN(2))
					u.pass(d, interval)
					q.age(overallLog(name), d)
				}
				left := permits - u.sum()
				want(t, "Go's AvailablePermits", left)(l.AvailablePermits(ctx))
				want(t, "Java's availablePermits", left)(theirs.AvailablePermits())
			}
		})
	}
}

func TestPerClientStaysSeparate(t *testing.T) {
	q := share(t)
	java := q.java()
	other := q.java()
	one, two := q.ours(), q.ours()
	ctx := t.Context()
	const name = "each"
	r := rate(5, time.Hour)
	r.Type = throttle.PerClient
	check(t, limiter(t, one, name).SetRate(ctx, r))

	type taker struct {
		id        string
		take      func(n int64) (bool, error)
		available func() (int64, error)
	}
	ofJava := func(p *redisson.Peer) taker {
		l := p.Limiter(name)
		return taker{p.ID(), func(n int64) (bool, error) { return l.TryAcquire(n, 0) }, l.AvailablePermits}
	}
	ofGo := func(c *throttle.Client) taker {
		l := limiter(t, c, name)
		return taker{
			c.ID(),
			func(n int64) (bool, error) { return l.TryAcquire(ctx, n) },
			func() (int64, error) { return l.AvailablePermits(ctx) },
		}
	}
	takers := []taker{ofJava(java), ofGo(one), ofJava(other), ofGo(two)}
	for i, k := range takers {
		want[int64](t, "permits of client "+k.id, 5)(k.available())
		want(t, "first of client "+k.id, true)(k.take(int64(i + 1)))
	}
	for i, k := range takers {
		want(t, "permits of client "+k.id, int64(4-i))(k.available())
		want(t, "too many of client "+k.id, false)(k.take(int64(5 - i)))
		if n := q.rdb.ZCard(ctx, overallLog(name)+":"+k.id).Val(); n != 1 {
			t.Errorf("%d entries in the log of client %s, want 1", n, k.id)
		}
	}
}

// Entries and fields that only we write do not disturb Java's methods.
func TestOursDoNotDisturbJava(t *testing.T) {
	q := share(t)
	java, ours := q.java(), q.ours()
	ctx := t.Context()
	const name = "api"
	theirs, mine, fleet := java.Limiter(name), limiter(t, ours, name), operate.NewFleet(q.rdb)
	check(t, mine.SetRate(ctx, rate(10, time.Hour)))
	want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 4))
	far, err := mine.Reserve(ctx, 10, 24*time.Hour) // a reservation
	check(t, err)
	far.Cancel()
	check(t, mine.Pause(ctx, time.Hour))
	check(t, mine.Resume(ctx))
	check(t, fleet.Pin(ctx, name))
	fields, err := q.rdb.HLen(ctx, name).Result()
	check(t, err)
	if fields < 10 {
		t.Fatalf("%d fields in the hash: nothing of ours to disturb with", fields)
	}

	cfg, err := theirs.Config()
	check(t, err)
	if cfg.Permits != 10 || cfg.Interval != time.Hour || cfg.PerClient {
		t.Errorf("getConfig: %+v", cfg)
	}
	want[int64](t, "availablePermits", 6)(theirs.AvailablePermits())
	check(t, theirs.Acquire(2))
	want(t, "tryAcquire", false)(theirs.TryAcquire(5, 0))
	want(t, "tryAcquire", true)(theirs.TryAcquire(4, time.Minute))
	q.age(overallLog(name), 2*time.Hour) // Java is the first to drop our entry
	want(t, "tryAcquire", true)(theirs.TryAcquire(10, 0))
	check(t, theirs.Release(10))
	want(t, "trySetRate", false)(theirs.TrySetRate(shared(rate(1, time.Second))))
	want(t, "updateRate", true)(theirs.UpdateRate(shared(rate(20, time.Hour)), true))
	check(t, theirs.SetRate(shared(rate(30, time.Hour))))
	want(t, "expire", true)(theirs.Expire(time.Hour))
	want(t, "clearExpire", true)(theirs.ClearExpire())
	usage, err := fleet.InspectClient(ctx, ours.ID(), name)
	check(t, err)
	if !usage.Pinned || usage.Available != 30 {
		t.Errorf("after what Java did: %+v, want it pinned, with all 30 permits", usage)
	}
	want(t, "TryAcquire", true)(mine.TryAcquire(ctx, 1))
	want(t, "delete", true)(theirs.Delete())
	keys, err := q.rdb.Keys(ctx, "*").Result()
	check(t, err)
	for _, key := range keys {
		if ttl := q.rdb.PTTL(ctx, key).Val(); ttl <= 0 {
			t.Errorf("Java's delete left %s, which stays (%v)", key, ttl)
		}
	}
}
