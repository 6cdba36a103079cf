package throttle

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// slowly is a Redis whose calls take long on the way there or back while that is set. It counts
// the calls of each script.
type slowly struct {
	redis.Scripter
	there, back atomic.Int64

	mu    sync.Mutex
	calls map[string]int
}

func (s *slowly) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	s.mu.Lock()
	s.calls[sha]++
	s.mu.Unlock()
	time.Sleep(time.Duration(s.there.Load()))
	defer func() { time.Sleep(time.Duration(s.back.Load())) }()
	return s.Scripter.EvalSha(ctx, sha, keys, args...)
}

// SharesCalls says that all limiters are on one server.
func (s *slowly) SharesCalls() bool { return true }

// count returns how many calls there were since the last count, and of which scripts.
func (s *slowly) count() map[*redis.Script]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := make(map[*redis.Script]int)
	for _, of := range []*redis.Script{script.Acquire, script.Fast, script.Many, script.Epoch} {
		n[of] = s.calls[of.Hash()]
	}
	s.calls = make(map[string]int)
	return n
}

func (b *bench) slowly() *slowly {
	b.loadScripts()
	return &slowly{Scripter: b.rdb, calls: make(map[string]int)}
}

// A reply that comes too late costs the exchange of its permits. The limit does not bind for that:
// those who come afterwards go the short way.
func TestLateReplyDoesNotBind(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		rdb := b.slowly()
		rdb.there.Store(int64(ms(1)))
		c := b.clientOf(rdb)
		l := many(b, c, 1, "late:%d", guarded("1000/1s"))[0]
		for range 8 { // so that Redis is known to be near
			time.Sleep(ms(1))
			check(b, l.Acquire(b.Context(), 2)) // which no prefetch serves
		}
		rdb.back.Store(int64(ms(8)))
		time.AfterFunc(ms(5), func() { rdb.back.Store(0) })
		check(b, l.Acquire(b.Context(), 2))
		if n := c.Stats().Stale; n != 1 {
			b.Fatalf("%d permits were stale; the test wants one", n)
		}
		rdb.count()
		for range 5 {
			time.Sleep(ms(1))
			check(b, l.Acquire(b.Context(), 2))
		}
		if n := rdb.count(); n[script.Fast] != 5 || n[script.Acquire] > 0 {
			b.Errorf("%d calls by the short way, and %d by the long way, for 5 requests of a limit that does not bind", n[script.Fast], n[script.Acquire])
		}
	})
}

// Nor does it hold up others: who asks next gets its permits at once.
func TestLateReplyHoldsUpNobody(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		rdb := b.slowly()
		rdb.there.Store(int64(ms(6)))
		c := b.clientOf(rdb)
		l := many(b, c, 1, "late:%d", guarded("1000/1s"))[0]
		for range 8 {
			check(b, l.Acquire(b.Context(), 2))
		}
		rdb.back.Store(int64(ms(100)))
		time.AfterFunc(ms(8), func() { rdb.back.Store(0) })
		var late sync.WaitGroup
		for range 3 {
			late.Go(func() { check(b, l.Acquire(b.Context(), 2)) })
		}
		time.Sleep(ms(6+100+6) + ms(1)/2) // they have asked again, for permits that are due later
		began := time.Now()
		check(b, l.Acquire(b.Context(), 2))
		if d := time.Since(began); d > ms(12) {
			b.Errorf("a permit of a limit that does not bind took %v; the call under way takes 6 ms at most, and the next one 6 ms", d)
		}
		late.Wait()
		if c.Stats().Stale == 0 {
			b.Error("no permit was stale")
		}
	})
}

// Redis's clock is the same for all limiters: where a call for one of them has just shown what it
// shows, a slow call for another leaves open neither when its permits were due nor that they are fresh.
func TestLimitersShareTheClock(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		rdb := b.slowly()
		c := b.clientOf(rdb)
		quick := many(b, c, 1, "quick:%d", guarded("1000/1s"))[0]
		rdb.there.Store(int64(ms(8)))
		slow := many(b, c, 20, "slow:%d", guarded("1000/1s"))
		rdb.there.Store(0)
		time.Sleep(time.Second)
		check(b, quick.Acquire(b.Context(), 1))
		rdb.there.Store(int64(ms(8)))
		rdb.count()
		late := c.Stats().Late
		check(b, errors.Join(atOnce(slow)...))
		late = c.Stats().Late - late
		if n := rdb.count(); late > 0 || n[script.Epoch] > 0 || n[script.Acquire] > 0 {
			b.Errorf("of 20 permits that were fresh, %d were taken for late; %d checks, and %d calls by the long way", late, n[script.Epoch], n[script.Acquire])
		}
	})
}
