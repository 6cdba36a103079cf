package throttle

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// TestLongLease: a lease may last a day. Its holder keeps the slot, also in the hours in which nobody asks Redis anything.
func TestLongLease(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		s := Slots{Limit: 1, Lease: 24 * time.Hour}
		f, err := b.client().InFlight(b.name(), s)
		check(b, err)
		job := b.hold(f, "job")
		b.until(7 * time.Hour)
		other, err := b.client().InFlight(b.name(), s)
		check(b, err)
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		if l, err := other.Acquire(ctx, "other"); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("after 7 h of 24 another asks for the slot, and gets %v, %v", l, err)
		}
		check(b, job.Context().Err())
		check(b, job.Release(b.Context()))
	})
}

// lastIsSlow is a way to Redis on which one reply comes late. After that, nothing reaches Redis.
type lastIsSlow struct {
	redis.Scripter
	late time.Duration // of the next reply
	slow atomic.Bool   // the next reply comes late
	cut  atomic.Bool
}

func (r *lastIsSlow) EvalSha(ctx context.Context, sha string, keys []string, args ...any) *redis.Cmd {
	if r.cut.Load() {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(errCut)
		return cmd
	}
	cmd := r.Scripter.EvalSha(ctx, sha, keys, args...)
	if r.slow.CompareAndSwap(true, false) {
		r.cut.Store(true)
		time.Sleep(r.late)
	}
	return cmd
}

// TestSlowReplyIsNoLongerLease: a lease counts from when it was asked for, however late the reply comes. If Redis cannot be
// reached after that, the context of the holder ends before another has the slot.
func TestSlowReplyIsNoLongerLease(t *testing.T) {
	for _, call := range []string{"claim", "renewal"} {
		t.Run(call, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				way := &lastIsSlow{Scripter: b.rdb, late: 2 * time.Second}
				s := Slots{Limit: 1, Lease: 15 * time.Second}
				f, err := b.clientOf(way).InFlight(b.name(), s)
				check(b, err)
				before := b.hold(f, "before")
				b.until(6 * time.Second) // Redis has the scripts
				check(b, before.Release(b.Context()))
				way.slow.Store(call == "claim")
				job := b.hold(f, "job")
				way.slow.Store(call == "renewal")
				g, err := b.client().InFlight(b.name(), s)
				check(b, err)
				next := b.hold(g, "next")
				if job.Context().Err() == nil {
					b.Errorf("another has the slot %v after the beginning, and the context of its holder has not ended", time.Since(b.begin))
				}
				way.cut.Store(false)
				check(b, next.Release(b.Context()))
			})
		})
	}
}

// refused expects that another gets no slot while the holder of a lease goes on.
func (b *bench) refused(f *InFlight, held *Lease) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Second)
	defer cancel()
	if l, err := f.Acquire(ctx, "other"); !errors.Is(err, context.DeadlineExceeded) {
		b.Errorf("another gets the slot: %v, %v", l, err)
	}
	check(b, held.Context().Err())
}

// TestLeasesOfDifferentLengths: a lease of two limits lasts, and is renewed, as the shorter of their leases, in whatever order the
// two are named.
func TestLeasesOfDifferentLengths(t *testing.T) {
	for i := range 2 {
		t.Run(fmt.Sprint("shorter is number ", i), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				short, long := Slots{Limit: 1, Lease: 3 * time.Second}, Slots{Limit: 1, Lease: time.Minute}
				c := b.client()
				limits := []*InFlight{must(c.InFlight(b.name()+":long", long)), must(c.InFlight(b.name()+":long:2", long))}
				limits[i] = must(c.InFlight(b.name()+":short", short))
				both := must(c.SlotGroup(limits...))
				job := must(both.AcquireEach(b.Context(), "job"))
				other := must(b.client().InFlight(b.name()+":short", short))
				for range 3 {
					time.Sleep(10 * time.Second)
					b.refused(other, job)
				}
				check(b, job.Release(b.Context()))
			})
		})
	}
}

// TestReleaseOfALostLease: Redis has lost what it knew of a limit in flight, and the same process gets another slot with the same
// id. The release of the lease from before does not free that slot.
func TestReleaseOfALostLease(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		f, g := b.inFlight(b.client(), "", 1), b.inFlight(b.client(), "", 1)
		lost := b.hold(f, "job")
		check(b, b.rdb.FlushAll(b.Context()).Err())
		time.Sleep(time.Second)
		job := b.hold(f, "job")
		check(b, lost.Release(b.Context()))
		b.refused(g, job)
		check(b, job.Release(b.Context()))
	})
}

// TestReentryThatNeverAsked: a caller comes with the id of a holder in its process, and leaves before Redis is asked. The holder
// keeps its slot.
func TestReentryThatNeverAsked(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		way := &lateReply{Scripter: b.rdb, ran: make(chan struct{}), late: make(chan struct{})}
		f, g := must(b.clientOf(way).InFlight(b.name(), Slots{Limit: 1})), b.inFlight(b.client(), "", 1)
		job := b.hold(f, "job")
		ctx, cancel := context.WithCancel(b.Context())
		way.next.Store(true)
		busy := make(chan error)
		go func() {
			_, err := f.Acquire(ctx, "busy")
			busy <- err
		}()
		<-way.ran // its call is under way
		over, leave := context.WithTimeout(b.Context(), ms(10))
		defer leave()
		if _, err := f.Acquire(over, "job"); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("without a call: %v", err)
		}
		close(way.late)
		time.Sleep(time.Second)
		cancel()
		if err := <-busy; !errors.Is(err, context.Canceled) {
			b.Errorf("another gets the slot: %v", err)
		}
		b.refused(g, job)
		check(b, job.Release(b.Context()))
	})
}

// TestWaitersOfADeadProcess: those who waited in a process that has died hold up nobody.
func TestWaitersOfADeadProcess(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		way := &cut{Scripter: b.rdb}
		dead := must(New(way, Options{}))
		defer dead.Close()
		holds := b.inFlight(b.client(), "", 1)
		job := b.hold(holds, "job")
		q := newInTurn(b)
		q.wait(b.inFlight(dead, "", 1), "a", "b", "c", "d", "e")
		way.off.Store(true)
		time.Sleep(5 * time.Second)
		check(b, job.Release(b.Context()))
		began := time.Now()
		next := b.hold(holds, "next")
		if took := time.Since(began); took > time.Second {
			b.Errorf("the next got its slot after %v", took)
		}
		check(b, next.Release(b.Context()))
	})
}
