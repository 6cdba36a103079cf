package throttle

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// smoothGrants are when permits of a limit came, n at a time.
type smoothGrants struct {
	r  Rate
	n  int64
	at []time.Time
}

// take has callers take n permits of l again and again until ctx ends.
func take(ctx context.Context, l *Limiter, r Rate, callers int, n int64) smoothGrants {
	g := smoothGrants{r: r, n: n}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for l.Acquire(ctx, n) == nil {
				mu.Lock()
				g.at = append(g.at, time.Now())
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.SortFunc(g.at, time.Time.Compare)
	return g
}

// between counts the permits from one time to another.
func (g smoothGrants) between(from, to time.Time) (permits int64) {
	for _, at := range g.at {
		if !at.Before(from) && at.Before(to) {
			permits += g.n
		}
	}
	return permits
}

// ahead is how many more permits came in any time than the rate allows in it.
func (g smoothGrants) ahead() float64 {
	most, level, last := 0.0, 0.0, time.Time{}
	for _, at := range g.at {
		level = max(0, level-float64(g.r.Permits)*at.Sub(last).Seconds()/(g.r.Interval+g.r.DefaultGuard()).Seconds()) + float64(g.n)
		most, last = max(most, level), at
	}
	return most
}

// TestSmoothIsUsed: a smooth limit gives all that it has, evenly, also if its log has more entries than it keeps apart.
func TestSmoothIsUsed(t *testing.T) {
	cases := []struct {
		rate    string
		callers int
		n       int64
		lasts   time.Duration // the last half of it counts
	}{
		{"255/1s", 300, 1, 6 * time.Second},
		{"300/1s", 400, 1, 6 * time.Second},
		{"1000/1s", 1200, 1, 6 * time.Second},
		{"3000/1s", 600, 7, 6 * time.Second},
		{"1000/10s", 300, 4, 60 * time.Second},
		{"90000/1m", 10, 200, 4 * time.Minute},
		{"90000/1m", 300, 550, 4 * time.Minute},
	}
	for _, tt := range cases[:quarter(len(cases))] {
		t.Run(tt.rate, func(t *testing.T) {
			underFakeTime(t, func(b *bench) {
				r := guarded(tt.rate)
				r.Smooth = true
				l := b.limited(r)
				ctx, cancel := context.WithTimeout(b.Context(), tt.lasts)
				defer cancel()
				g := take(ctx, l, r, tt.callers, tt.n)
				got := float64(g.between(b.begin.Add(tt.lasts/2), b.begin.Add(tt.lasts)))
				want := float64(r.Permits) * (tt.lasts / 2).Seconds() / (r.Interval + r.DefaultGuard()).Seconds()
				uneven := g.ahead() - float64(tt.n)
				b.Logf("%.3f of the limit, at most %.1f permits too early", got/want, uneven)
				if got < 0.98*want {
					b.Errorf("%.0f permits, want %.0f", got, want)
				}
				if bucket := float64(r.Permits) / 256; uneven > max(2*bucket, float64(tt.n)/10) {
					b.Errorf("%.1f permits came too early, want no more than those of 2/256 of a window, %.1f", uneven, 2*bucket)
				}
			})
		})
	}
}

// TestSmoothBeforeLarge: permits keep the distance of a large reservation after them, however many entries the log has. Of a
// limit of more than 256 permits, to within 1/128 of a window.
func TestSmoothBeforeLarge(t *testing.T) {
	for _, tt := range []struct {
		permits int64
		before  int
		want    time.Duration
	}{
		{1000, 10, 1005 * time.Millisecond}, {1000, 300, 1005*time.Millisecond - 10050*time.Millisecond/128},
		{250, 300, 4020 * time.Millisecond},
	} {
		underFakeTime(t, func(b *bench) {
			l := b.limited(Rate{Permits: tt.permits, Interval: 10 * time.Second, Smooth: true})
			for range tt.before {
				check(b, l.Acquire(b.Context(), 1))
			}
			last := time.Now()
			large := must(l.Reserve(b.Context(), 100, time.Minute))
			ctx, cancel := context.WithTimeout(b.Context(), large.Delay())
			defer cancel()
			for l.Acquire(ctx, 1) == nil {
				last = time.Now()
			}
			check(b, large.Wait(b.Context()))
			if d := time.Since(last); d < tt.want {
				b.Errorf("%d permits, after %d: 100 came %v after another, want %v or more", tt.permits, tt.before, d, tt.want)
			}
		})
	}
}

// TestSmoothAtOnce: who asks at once, again and again, gets no more of a smooth limit than others.
func TestSmoothAtOnce(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		r := guarded("1000/10s")
		r.Smooth = true
		l := b.limited(r)
		for range 300 {
			check(b, l.Acquire(b.Context(), 1))
		}
		g := smoothGrants{r: r, n: 1}
		for range 400 {
			var wg sync.WaitGroup
			var mu sync.Mutex
			for range 4 {
				wg.Go(func() {
					if ok, err := l.TryAcquire(b.Context(), 1); ok && err == nil {
						mu.Lock()
						defer mu.Unlock()
						g.at = append(g.at, time.Now())
					}
				})
			}
			wg.Wait()
			time.Sleep(11 * time.Millisecond)
		}
		if ahead := g.ahead(); ahead > 1+2*1000.0/256 || len(g.at) < 400 {
			b.Errorf("%d permits, %.1f of them too early, want no more than those of 2/256 of a window", len(g.at), ahead)
		}
	})
}

// TestCalendarCountsItsOwn: what was used in one calendar window does not count in the next, whatever the offset, and what is
// reserved for the next does not count in this one.
func TestCalendarCountsItsOwn(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(Rate{Permits: 1000, Interval: 24 * time.Hour, Window: Calendar, Offset: 8 * time.Hour, Guard: -1})
		midnight := b.begin.Truncate(24 * time.Hour)
		boundary := midnight.Add(8 * time.Hour)
		for !boundary.After(time.Now().Add(time.Hour)) {
			boundary = boundary.Add(24 * time.Hour)
		}
		for range 257 {
			check(b, l.Acquire(b.Context(), 1))
			time.Sleep(time.Second)
		}
		time.Sleep(time.Until(boundary.Add(-5 * time.Second)))
		check(b, l.Acquire(b.Context(), 700))
		time.Sleep(10 * time.Second)
		check(b, l.Acquire(b.Context(), 1))
		b.expectAvailable(l, 999)
		b.expectTry(l, 300, true)
		r := must(l.Reserve(b.Context(), 900, 48*time.Hour)) // tomorrow
		if !r.OK() || r.Delay() < time.Hour {
			b.Fatalf("reserved in %v", r.Delay())
		}
		b.expectAvailable(l, 699)
		b.expectTry(l, 699, true)
	})
}
