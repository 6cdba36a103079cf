package peer

import (
	"context"
	"fmt"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/internal/redisson"
)

// Redisson is the real Redisson, in a JVM. Its threads acquire with a timeout that ends with
// the work. Without one, acquire would outlive the work.
type Redisson struct{ jvm *redisson.Peer }

// warmUp is how long the JVM compiles before it is measured.
const warmUp = 3 * time.Second

// StartRedisson starts a JVM and warms it up. The error is redisson.ErrNoJava if there is no
// Java. The caller has to Close it.
func StartRedisson(ctx context.Context, addr string) (*Redisson, error) {
	jvm, err := redisson.Start(ctx, addr)
	if err != nil {
		return nil, err
	}
	p := &Redisson{jvm}
	limit := fleet.Limit{Name: "warm-up", Permits: 1_000_000, Interval: time.Second}
	warm := redissonFleet{jvm, fleet.Work{Limits: []fleet.Limit{limit}, Clients: 1, Goroutines: 64, Length: warmUp}}
	if _, err := warm.Work(ctx); err != nil {
		_ = jvm.Close() // only the failed warm-up matters
		return nil, fmt.Errorf("warm up Redisson: %w", err)
	}
	return p, nil
}

// Name is the peer's name in tables.
func (p *Redisson) Name() string { return NameRedisson }

// Version is Redisson's version.
func (p *Redisson) Version() string { return p.jvm.Version() }

// Close ends the JVM.
func (p *Redisson) Close() error { return p.jvm.Close() }

// redissonFleet is the clients of the JVM.
type redissonFleet struct {
	jvm  *redisson.Peer
	work fleet.Work
}

// Join connects as many clients as the work has, with all the connections that each keeps.
func (p *Redisson) Join(_ context.Context, w fleet.Work) (Fleet, error) {
	if len(w.Limits) != 1 {
		return nil, fmt.Errorf("redisson: %d limits, want 1: it has no group", len(w.Limits))
	}
	return redissonFleet{p.jvm, w}, p.jvm.Connect(w.Clients)
}

// Close closes all clients except the first: the many connections that each keeps would cost
// Redis time in the next measurement.
func (f redissonFleet) Close() error { return f.jvm.Disconnect() }

// Work lets threads acquire in a loop without a break: Every does not apply.
func (f redissonFleet) Work(ctx context.Context) ([]fleet.Use, error) {
	w := f.work
	l := w.Limits[0]
	if err := f.jvm.Limiter(l.Name).SetRate(redisson.Rate{Permits: l.Permits, Interval: l.Interval}); err != nil {
		return nil, err
	}
	costs := make([]int64, w.Clients*w.Goroutines)
	for thread := range costs {
		costs[thread] = w.CostOf(thread%w.Clients, thread/w.Clients)
	}
	grants, err := f.jvm.Load(redisson.Load{Limiter: l.Name, Costs: costs, Clients: w.Clients, For: w.Length})
	if ctx.Err() != nil {
		return nil, ctx.Err() // which has ended the JVM, whatever Load returned
	}
	if err != nil || len(grants) == 0 {
		return nil, err
	}
	begin := grants[0].Asked
	for _, g := range grants {
		begin = min(begin, g.Asked)
	}
	uses := make([]fleet.Use, len(grants))
	for i, g := range grants {
		uses[i] = fleet.Use{
			At:        time.Duration(g.At - begin),
			Permits:   int32(costs[g.Thread]),
			Client:    uint16(g.Thread % w.Clients),
			Goroutine: uint16(g.Thread / w.Clients),
		}
	}
	return uses, nil
}
