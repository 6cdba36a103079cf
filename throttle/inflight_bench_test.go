package throttle

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// BenchmarkHandover reports how long it takes from the release of a slot until the next holder
// starts, half of the time in another process's Client, with 512 waiting.
func BenchmarkHandover(b *testing.B) {
	addr := redistest.Start(b)
	var clients []*Client
	for range 2 {
		c, err := New(dial(b, addr), Options{})
		check(b, err)
		clients = append(clients, c)
	}
	ctx, cancel := context.WithCancel(b.Context())
	starts := make(chan *Lease)
	var wg sync.WaitGroup
	for i := range 513 {
		f, err := clients[i%2].InFlight("bench", Slots{Limit: 1})
		check(b, err)
		wg.Go(func() {
			for n := 0; ; n++ {
				l, err := f.Acquire(ctx, fmt.Sprint(i, ":", n))
				if err != nil {
					return
				}
				starts <- l
			}
		})
	}
	lease := <-starts
	for clients[0].slots.Waiting()+clients[1].slots.Waiting() < 512 {
		time.Sleep(10 * time.Millisecond)
	}
	var took []time.Duration
	for b.Loop() {
		at := time.Now()
		lease.lease.Free()
		lease = <-starts
		took = append(took, time.Since(at))
		for clients[0].slots.Waiting()+clients[1].slots.Waiting() < 512 {
			time.Sleep(time.Millisecond)
		}
	}
	cancel()
	wg.Wait()
	check(b, lease.Release(context.Background()))
	for _, c := range clients {
		check(b, c.Close())
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
