package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestDrain has throttled and unthrottled tasks share the slots of four workers:
// the limit is kept and used, and the others hardly notice. JOBTHROTTLE_NIGHTLY=1
// runs it at full size, where the start and the end weigh less.
func TestDrain(t *testing.T) {
	throttled, free, within := 250, 300, 1.2
	if nightly() {
		throttled, free, within = 1000, 1500, 1.06
	}
	const interval, guard = time.Second, 10 * time.Millisecond
	ideal := time.Duration(throttled/50-1) * (interval + guard)

	f := newFleet(t, `
limits: { api: { rate: 50/1s } }
pools: [ { name: default, concurrency: 10 } ]
jobs: { "x:limited": { limits: [api] } }
log: { level: warn }
`)
	for i := range throttled {
		f.enqueue("x:limited", fmt.Sprint("limited", i))
	}
	for range 4 {
		f.work(func(ctx context.Context, _ *asynq.Task) error {
			<-time.After(10 * time.Millisecond) // what a job takes
			return nil
		})
	}
	f.await(1, 5*time.Second)
	sent := make([]time.Time, free)
	var wg sync.WaitGroup
	wg.Go(func() { // evenly, from second 1 on
		<-time.After(time.Second)
		tick := time.NewTicker((ideal - time.Second) / time.Duration(free))
		defer tick.Stop()
		for i := range free {
			<-tick.C
			sent[i] = time.Now()
			if _, err := f.client.Enqueue(asynq.NewTask("x:free", nil), asynq.TaskID(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		}
	})
	starts := f.await(throttled+free, 2*ideal+10*time.Second)
	wg.Wait()

	var limited []start
	var waits []time.Duration
	for _, s := range starts {
		if s.typ == "x:limited" {
			limited = append(limited, s)
			continue
		}
		var i int
		if _, err := fmt.Sscan(s.id, &i); err != nil {
			t.Fatal(err)
		}
		waits = append(waits, s.at.Sub(sent[i]))
	}
	slices.Sort(waits)
	p99 := waits[len(waits)*99/100]
	ratio := limited[len(limited)-1].at.Sub(limited[0].at).Seconds() / ideal.Seconds()
	attempts := 1 + float64(f.putOff())/float64(throttled)
	most := busiest(limited, interval)
	t.Logf("drained in %.3f of the ideal, %.2f attempts per job, at most %d starts in a second; without limits p50 %v, p99 %v",
		ratio, attempts, most, waits[len(waits)/2], p99)
	if len(limited) != throttled || ratio > within {
		t.Errorf("%d starts in %.3f of the ideal, want %d in at most %.2f", len(limited), ratio, throttled, within)
	}
	if attempts > 2.3 {
		t.Errorf("%.2f attempts per job, want at most 2.3", attempts)
	}
	if most > 50 {
		t.Errorf("%d starts in one second, want at most 50", most)
	}
	if p99 > 250*time.Millisecond { // polling an empty queue takes up to 150 ms
		t.Errorf("tasks without limits waited %v (p99)", p99)
	}
}
