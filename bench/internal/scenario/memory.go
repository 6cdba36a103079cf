package scenario

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/figures"
	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/bench/internal/peer"
)

// Memory is the name of the scenario with a large log.
const Memory = "memory"

// memory fills a whole interval. A log of ours is largest if its permits are spread over all of
// the interval. So callers ask evenly, a fifth more often than the limit allows. The size of
// the log does not depend on the length of the interval. What the others store does not depend
// on when permits were used (Redisson has an entry for each, redis_rate one number), so their
// callers simply take all permits.
func (b Bench) memory() Scenario {
	const clients, goroutines = 8, 64
	log, interval := b.Size.Log, b.Size.LogInterval
	spread := fleet.Work{
		Limits:     []fleet.Limit{{Name: Memory, Permits: log, Interval: interval}},
		Clients:    clients,
		Goroutines: goroutines,
		Every:      interval * clients * goroutines * 10 / 12 / time.Duration(log),
		Length:     interval + interval/4,
	}
	taken := spread
	taken.Limits = []fleet.Limit{{Name: Memory, Permits: log, Interval: time.Minute}}
	taken.Every, taken.Length = 0, 3*interval

	s := Scenario{
		Name:  Memory,
		Title: "Memory at 100,000/min, all used, 8 clients x 64 waiters",
		Text: fmt.Sprintf("The most that the limiter's keys took (MEMORY USAGE) while %d permits of an interval were used. What redis_rate and Redisson keep "+
			"is the same whenever a permit was used, so their callers take all permits of the minute at once. jobthrottle's log is largest "+
			"if it is full from end to end, however long that is, so its interval is %v and callers ask evenly, 1.2 times as often as the "+
			"limit allows.", log, interval),
		Base:    peer.NameJobthrottle,
		Columns: []figures.Metric{figures.Bytes},
	}
	for _, p := range b.waitingPeers() {
		w := taken
		if p.Name() == peer.NameJobthrottle {
			w = spread
		}
		s.Runs = append(s.Runs, Run{p.Name(), w.Length, func(ctx context.Context) (Result, error) {
			return b.weigh(ctx, p, w)
		}})
	}
	return s
}

// weigh lets a fleet work, and measures the limiter's keys repeatedly.
func (b Bench) weigh(ctx context.Context, p peer.Peer, w fleet.Work) (Result, error) {
	if err := b.Server.Flush(ctx); err != nil { // what the last peer left must not be counted while this one connects
		return Result{}, fmt.Errorf("empty Redis: %w", err)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var (
		most    int64
		failed  error
		watcher sync.WaitGroup
	)
	watcher.Go(func() {
		tick := time.NewTicker(w.Length / 25)
		defer tick.Stop()
		for {
			select {
			case <-watching.Done():
				return
			case <-tick.C:
			}
			n, err := b.Server.KeyBytes(watching)
			if err != nil {
				if watching.Err() == nil {
					failed = err
				}
				return
			}
			most = max(most, n)
		}
	})
	uses, f, err := b.measure(ctx, p, w)
	stop()
	watcher.Wait()
	if err := errors.Join(err, failed); err != nil {
		return Result{}, err
	}
	if used := fleet.Permits(uses); used < w.Limits[0].Permits {
		return Result{}, fmt.Errorf("%d of %d permits were used in %v: the log was not full", used, w.Limits[0].Permits, w.Length)
	}
	f[figures.Bytes] = float64(most)
	return Result{Figures: f}, nil
}
