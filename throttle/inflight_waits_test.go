package throttle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// inTurn has n callers wait for a slot, one after the other, and notes in which order they get it. Each keeps it
// until release is called.
type inTurn struct {
	b     *bench
	order chan string
	next  chan struct{}
}

func newInTurn(b *bench) *inTurn {
	return &inTurn{b: b, order: make(chan string, 1000), next: make(chan struct{})}
}

func (q *inTurn) wait(f *InFlight, ids ...string) {
	for _, id := range ids {
		go func() {
			l, err := f.Acquire(q.b.Context(), id)
			if err != nil {
				return
			}
			q.order <- id
			<-q.next
			_ = l.Release(q.b.Context())
		}()
		time.Sleep(10 * time.Millisecond) // it is in line
	}
}

// served returns the ids of those that get the next n slots.
func (q *inTurn) served(n int) (ids []string) {
	for range n {
		ids = append(ids, <-q.order)
		q.next <- struct{}{}
	}
	return ids
}

// TestSlotLineWhenTheClockIsSetBack: those who wait when Redis's clock is set back by an hour stay before those who
// come after that.
func TestSlotLineWhenTheClockIsSetBack(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		clock := newSetClock(b)
		f, g := b.inFlight(b.client(), "", 1), b.inFlight(b.client(), "", 1)
		first := b.hold(f, "first")
		q := newInTurn(b)
		q.wait(f, "a", "b")
		time.Sleep(time.Second)
		clock.step(-time.Hour)
		time.Sleep(time.Second)
		q.wait(g, "c", "d")
		check(b, first.Release(b.Context()))
		if got := strings.Join(q.served(4), ""); got != "abcd" {
			b.Errorf("served in the order %s, want abcd", got)
		}
	})
}

// TestSlotLineOfMany: Redis has lost the line. All those who wait in a process take up their positions again, before
// those of another process who came after that.
func TestSlotLineOfMany(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		f, g := b.inFlight(b.client(), "", 1), b.inFlight(b.client(), "", 1)
		first := b.hold(f, "first")
		q := newInTurn(b)
		var ids, later []string
		for i := range 200 {
			ids = append(ids, fmt.Sprintf("early%03d", i))
		}
		q.wait(f, ids...)
		check(b, b.rdb.Del(b.Context(), "{"+b.name()+"}:line").Err())
		time.Sleep(5 * time.Second)
		for i := range 20 {
			later = append(later, fmt.Sprintf("late%02d", i))
		}
		q.wait(g, later...)
		check(b, first.Release(b.Context()))
		for i, id := range q.served(len(ids)) {
			if strings.HasPrefix(id, "late") {
				b.Fatalf("%s was served as number %d, before others who came earlier", id, i+1)
			}
		}
		q.served(len(later))
	})
}

// TestClaimOfLongAgo: a process that lost Redis while it waited for a slot ends nobody's lease when it has Redis
// again, though the lease has the id for which it waited.
func TestClaimOfLongAgo(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		way := &cut{Scripter: b.rdb}
		f := b.inFlight(b.clientOf(way), "", 1)
		c := b.client()
		g := b.inFlight(c, "", 1)
		first := b.hold(g, "first")
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := f.Acquire(ctx, "job")
			ended <- err
		}()
		time.Sleep(time.Second)
		way.off.Store(true)
		time.Sleep(time.Second) // its poll fails, and is made again and again
		cancel()
		if err := <-ended; err == nil {
			b.Fatal("a wait that was cancelled got a slot")
		}
		time.Sleep(time.Minute)
		check(b, first.Release(b.Context()))
		job := b.hold(g, "job")
		time.Sleep(time.Second)
		way.off.Store(false)
		time.Sleep(20 * time.Second)
		if err := job.Context().Err(); err != nil {
			b.Errorf("the lease ended: %v", context.Cause(job.Context()))
		}
		check(b, job.Release(b.Context()))
	})
}

// deaf is a way to Redis on which some calls get no answer.
type deaf struct {
	redis.Scripter
	calls atomic.Int64 // this many
	name  atomic.Value // those for this limit, whatever their number
}

func (d *deaf) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	name, _ := d.name.Load().(string)
	if d.calls.Add(-1) >= 0 || name != "" && keys[0] == name {
		<-ctx.Done()
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(ctx.Err())
		return cmd
	}
	return d.Scripter.EvalSha(ctx, sha, keys, args...)
}

// TestRenewalWithoutAnAnswer: a renewal that gets no answer, as on a dead connection, is made again before a short
// lease is over.
func TestRenewalWithoutAnAnswer(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		way := &deaf{Scripter: b.rdb}
		f, err := b.clientOf(way).InFlight(b.name(), Slots{Limit: 1, Lease: 3 * time.Second})
		check(b, err)
		l := b.hold(f, "job")
		way.calls.Store(1)
		b.until(10 * time.Second)
		if err := l.Context().Err(); err != nil {
			b.Errorf("the lease ended: %v", context.Cause(l.Context()))
		}
		check(b, l.Release(b.Context()))
	})
}

// TestOneLimitWithoutAnAnswer: while the renewals of one limit get no answer, because its server does not, the leases
// of others live on.
func TestOneLimitWithoutAnAnswer(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		way := &deaf{Scripter: b.rdb}
		c := b.clientOf(way)
		var leases []*Lease
		for i := range 8 {
			leases = append(leases, b.hold(b.inFlight(c, fmt.Sprint(":", i), 1), "job"))
		}
		way.name.Store(b.name() + ":3")
		b.until(40 * time.Second)
		for i, l := range leases {
			if ended := l.Context().Err() != nil; ended != (i == 3) {
				b.Errorf("limit %d: the lease has ended: %v", i, ended)
			}
		}
		way.name.Store("")
		for _, l := range leases {
			_ = l.Release(b.Context())
		}
	})
}

// TestLeasesOfTwoLimitsLiveOn: leases of several limits are renewed together, by a client that has pipelines.
func TestLeasesOfTwoLimitsLiveOn(t *testing.T) {
	t.Parallel()
	forEachRedis(t, func(b *bench) {
		c := b.client()
		var leases []*Lease
		for i := range 3 {
			f, err := c.InFlight(b.name()+fmt.Sprint(":", i), Slots{Limit: 1, Lease: 3 * time.Second})
			check(b, err)
			leases = append(leases, b.hold(f, "job"))
		}
		b.until(5 * time.Second)
		for _, l := range leases {
			check(b, l.Context().Err())
			check(b, l.Release(b.Context()))
		}
	})
}

// lateReply is a way to Redis on which the reply of one call, when it is asked for, comes late.
type lateReply struct {
	redis.Scripter
	next      atomic.Bool   // the next call is that one
	ran, late chan struct{} // it has run; its reply may come
}

func (r *lateReply) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	held := r.next.CompareAndSwap(true, false)
	cmd := r.Scripter.EvalSha(ctx, sha, keys, args...)
	if held {
		close(r.ran)
		<-r.late
	}
	return cmd
}

// TestReentryThatIsCancelled: a caller asks with the id of a holder in its process, and gives up while Redis answers. When
// another gets the slot, the holder's context has ended.
func TestReentryThatIsCancelled(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		way := &lateReply{Scripter: b.rdb, ran: make(chan struct{}), late: make(chan struct{})}
		f, err := b.clientOf(way).InFlight(b.name(), Slots{Limit: 1})
		check(b, err)
		first := b.hold(f, "job")
		way.next.Store(true)
		ctx, cancel := context.WithCancel(b.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := f.Acquire(ctx, "job")
			gaveUp <- err
		}()
		<-way.ran
		cancel()
		if err := <-gaveUp; !errors.Is(err, context.Canceled) {
			b.Errorf("it gave up with %v", err)
		}
		close(way.late)
		other := b.hold(b.inFlight(b.client(), "", 1), "other")
		if cause := context.Cause(first.Context()); !errors.Is(cause, ErrReentered) {
			b.Errorf("another has the slot, and the context of its holder has %v", cause)
		}
		check(b, other.Release(b.Context()))
		_ = first.Release(b.Context())
	})
}

// lastReply is a way to Redis that is cut off: one call is still served, without a reply.
type lastReply struct {
	redis.Scripter
	off  atomic.Bool
	once sync.Once
}

func (r *lastReply) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if !r.off.Load() {
		return r.Scripter.EvalSha(ctx, sha, keys, args...)
	}
	r.once.Do(func() { r.Scripter.EvalSha(ctx, sha, keys, args...) })
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(errCut)
	return cmd
}

// TestShorterLease: leases are made shorter, and the last call of a holder that is served, a renewal or a claim with the same
// id, has no reply. Its slot is not another's before its context has ended.
func TestShorterLease(t *testing.T) {
	for _, call := range []string{"renewal", "claim"} {
		t.Run(call, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				way := &lastReply{Scripter: b.rdb}
				f, err := b.clientOf(way).InFlight(b.name(), Slots{Limit: 1, Lease: 15 * time.Second})
				check(b, err)
				first := b.hold(f, "job")
				b.until(6 * time.Second) // it was renewed
				g, err := b.client().InFlight(b.name(), Slots{Limit: 1, Lease: 3 * time.Second})
				check(b, err)
				got := make(chan *Lease, 1)
				go func() { got <- b.hold(g, "next") }()
				b.until(7 * time.Second) // the lease is shorter
				way.off.Store(true)
				if call == "claim" {
					ctx, cancel := context.WithTimeout(b.Context(), time.Second)
					_, err = f.Acquire(ctx, "job")
					cancel()
					if err == nil {
						b.Error("a claim without a reply has a slot")
					}
				}
				next := <-got
				if first.Context().Err() == nil {
					b.Errorf("another has the slot %v after the beginning, and the context of its holder has not ended", time.Since(b.begin))
				}
				way.off.Store(false)
				check(b, next.Release(b.Context()))
			})
		})
	}
}
