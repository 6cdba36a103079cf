package simulate

import (
	"context"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// Fleet is Clients of one limiter. All their waiters begin at the same time, and acquire in a
// loop, one permit at a time.
type Fleet struct {
	Rate    throttle.Rate
	Clients int
	Waiters int           // in each Client
	Warm    time.Duration // the time before it counts only in the figures of the start
	Length  time.Duration
	Slower  int // Redis takes this many times as long for everything; zero: as long as usual
	// What happens halfway between Warm and Length:
	Dying int           // this many Clients die, with their reservations
	Stall time.Duration // Redis stands still for this long
}

// use is one permit that a Client got.
type use struct {
	at     time.Duration
	client int
}

// member is one Client of a fleet that runs.
type member struct {
	client  *throttle.Client
	limiter *throttle.Limiter
	process *process
}

// Run lets a fleet wait at r. It is called inside a bubble.
func (f Fleet) Run(ctx context.Context, r *Redis) (Figures, error) {
	r.slower = time.Duration(max(f.Slower, 1))
	channel := miniredis.NewMiniRedis()
	defer channel.Close()
	news := newsFrom(channel)
	defer news.Close()
	members := make([]member, f.Clients)
	for i := range members {
		p := &process{redis: r, news: news, death: make(chan struct{})}
		c, err := throttle.New(p, throttle.Options{})
		if err != nil {
			return Figures{}, err
		}
		l, err := c.LimiterWithRate("simulated", f.Rate)
		if err != nil {
			return Figures{}, err
		}
		members[i] = member{c, l, p}
	}

	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		g     = Figures{fleet: f}
		uses  []use
		begin = time.Now()
	)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for i, m := range members {
		had := func() {
			mu.Lock()
			defer mu.Unlock()
			if !m.process.dead() {
				uses = append(uses, use{time.Since(begin), i})
			}
		}
		for range f.Waiters {
			wg.Go(func() {
				for !m.process.dead() {
					if err := m.limiter.Acquire(ctx, 1); err != nil {
						cancel(err) // only the first cause counts; at the end, ctx has already ended
						return
					}
					had()
				}
			})
		}
	}
	until := func(d time.Duration) { time.Sleep(time.Until(begin.Add(d))) }
	until(time.Second)
	g.Start = r.Load()
	until(f.Warm)
	r.Load()
	until((f.Warm + f.Length) / 2)
	for _, m := range members[:f.Dying] {
		close(m.process.death)
	}
	if f.Stall > 0 {
		r.stall(f.Stall)
	}
	until(f.Length)
	g.Steady = r.Load()

	for _, m := range members[f.Dying:] {
		close(m.process.death) // returning everything would take as long as the rest
	}
	failed := context.Cause(ctx)
	cancel(nil)
	wg.Wait()
	for _, m := range members {
		wg.Go(func() { _ = m.client.Close() }) // the error is that it could return nothing
		g.Stale += int(m.client.Stats().Stale)
	}
	wg.Wait()
	g.count(uses)
	return g, failed
}
