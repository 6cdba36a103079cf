package throttle

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestLatePermitsCostNoInterval: if a part of a limit worth mentioning came too late to be used, it is used a little later,
// by its caller or by another one, of the same process or of another.
func TestLatePermitsCostNoInterval(t *testing.T) {
	for _, processes := range []int{1, 2} {
		t.Run(fmt.Sprint(processes, " processes"), func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				const callers, late = 20, 200 * time.Millisecond
				r := Rate{Permits: 5, Interval: time.Second, Guard: 50 * time.Millisecond}
				ls := []*Limiter{b.limiter(b.client()), b.limiter(b.client())}[:processes]
				check(b, ls[0].SetRate(b.Context(), r))
				a := &arrivals{b: b}
				var wg sync.WaitGroup
				for i := range callers {
					l := ls[i%processes]
					if i%5 > 0 {
						a.wait(b.Context(), l, 1)
						continue
					}
					wg.Go(func() {
						of, err := l.Reserve(b.Context(), 1, time.Minute)
						check(b, err)
						time.Sleep(of.Delay() + late)
						check(b, of.Wait(b.Context()))
					})
				}
				wg.Wait()
				a.wg.Wait()
				ideal := (callers/5 - 1) * (r.Interval + r.Guard)
				if took := time.Since(b.begin); took > ideal+late+r.Interval/4 {
					b.Errorf("%v, want about %v", took, ideal+late)
				}
			})
		})
	}
}

// TestLatePermitsKeepDeadlines: who has been told that its permits come in time gets them in time, also if others of its
// process use theirs late.
func TestLatePermitsKeepDeadlines(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := Rate{Permits: 2, Interval: time.Second, Guard: 50 * time.Millisecond}
		l := b.limited(r)
		late, err := l.Reserve(b.Context(), 1, time.Minute)
		check(b, err)
		check(b, l.Acquire(b.Context(), 1))
		ctx, cancel := context.WithTimeout(b.Context(), r.Interval+r.Guard+20*time.Millisecond)
		defer cancel()
		a := &arrivals{b: b}
		a.wait(ctx, l, 1)
		a.wait(ctx, l, 1)
		time.Sleep(200 * time.Millisecond)
		check(b, late.Wait(b.Context()))
		a.expect(ms(200), ms(1050)) // the first has what came too late
	})
}

// TestForgottenPermitsMoveNobody: who comes for a reservation when its permits do not count any more gets others, after
// those who wait.
func TestForgottenPermitsMoveNobody(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(Rate{Permits: 1, Interval: time.Second, Guard: 50 * time.Millisecond})
		forgotten, err := l.Reserve(b.Context(), 1, time.Minute)
		check(b, err)
		a := &arrivals{b: b}
		for range 3 {
			a.wait(b.Context(), l, 1)
		}
		time.Sleep(1300 * time.Millisecond)
		check(b, forgotten.Wait(b.Context()))
		a.expect(ms(1050), ms(2100), ms(3150))
	})
}

// TestLatePermitsOfAWindow: if a process is late with all permits of a window, others use them, and the process those of
// the next.
func TestLatePermitsOfAWindow(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := Rate{Permits: 56, Interval: time.Second, Guard: 50 * time.Millisecond}
		l, other := b.limiter(b.client()), b.limiter(b.client())
		check(b, l.SetRate(b.Context(), r))
		var late sync.WaitGroup
		for range r.Permits {
			of, err := l.Reserve(b.Context(), 1, time.Minute)
			check(b, err)
			late.Go(func() {
				time.Sleep(200 * time.Millisecond)
				check(b, of.Wait(b.Context()))
			})
		}
		a := &arrivals{b: b}
		for range r.Permits {
			a.wait(b.Context(), other, 1)
		}
		late.Wait()
		a.wg.Wait()
		if took := time.Since(b.begin); took > r.Interval+r.Guard+400*time.Millisecond {
			b.Errorf("%v, want about 1.3s", took)
		}
	})
}
