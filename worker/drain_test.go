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

const drainRate, drainInterval, drainGuard = 50, time.Second, 10 * time.Millisecond

// drained is what came of throttled and unthrottled tasks that shared the
// slots of four workers.
type drained struct {
	limited  []start
	ratio    float64 // of the time that the limit allows, first to last start
	attempts float64 // per throttled task
	waits    []time.Duration
}

// p99 is how long unthrottled tasks took from enqueueing to start.
func (d drained) p99() time.Duration { return d.waits[len(d.waits)*99/100] }

// runDrain runs throttled tasks, enqueued beforehand, and free ones that arrive
// evenly over the time the throttled ones would take, from second 1 on.
func runDrain(t testing.TB, throttled, free int, over time.Duration) drained {
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
	sent := make([]time.Time, free)
	var wg sync.WaitGroup
	wg.Go(func() {
		<-time.After(time.Second)
		tick := time.NewTicker((over - time.Second) / time.Duration(free))
		defer tick.Stop()
		for i := range free {
			<-tick.C
			sent[i] = time.Now()
			if _, err := f.client.Enqueue(asynq.NewTask("x:free", nil), asynq.TaskID(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		}
	})
	starts := f.await(throttled+free, 2*over+10*time.Second)
	wg.Wait()

	var d drained
	for _, s := range starts {
		if s.typ == "x:limited" {
			d.limited = append(d.limited, s)
			continue
		}
		var i int
		if _, err := fmt.Sscan(s.id, &i); err != nil {
			t.Fatal(err)
		}
		d.waits = append(d.waits, s.at.Sub(sent[i]))
	}
	slices.Sort(d.waits)
	if n := len(d.limited); n > 0 {
		d.ratio = d.limited[n-1].at.Sub(d.limited[0].at).Seconds() / over.Seconds()
		d.attempts = 1 + float64(f.putOff())/float64(throttled)
	}
	return d
}

func idealDrain(tasks int) time.Duration {
	return time.Duration(tasks/drainRate-1) * (drainInterval + drainGuard)
}

// TestDrain: the limit is kept, all tasks run, and parking them costs few
// attempts. BenchmarkDrain has the times.
func TestDrain(t *testing.T) {
	throttled, free := 250, 300
	if nightly() {
		throttled, free = 1000, 1500
	}
	d := runDrain(t, throttled, free, idealDrain(throttled))
	most := busiest(d.limited, drainInterval)
	t.Logf("drained in %.3f of the ideal, %.2f attempts per job, at most %d starts in a second; without limits p99 %v",
		d.ratio, d.attempts, most, d.p99())
	if len(d.limited) != throttled {
		t.Errorf("%d starts, want %d", len(d.limited), throttled)
	}
	if d.attempts > 2.3 {
		t.Errorf("%.2f attempts per job, want at most 2.3", d.attempts)
	}
	if most > drainRate {
		t.Errorf("%d starts in one second, want at most %d", most, drainRate)
	}
}

// BenchmarkDrain prints how long 1000 throttled tasks take against what their
// limit allows, and what they do to 1500 others, against those alone.
func BenchmarkDrain(b *testing.B) {
	const throttled, free = 1000, 1500
	for b.Loop() {
		alone := runDrain(b, 0, free, idealDrain(throttled))
		d := runDrain(b, throttled, free, idealDrain(throttled))
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(d.ratio, "of-ideal")
		b.ReportMetric(d.attempts, "attempts/job")
		b.ReportMetric(float64(busiest(d.limited, drainInterval)), "busiest-second")
		b.ReportMetric(d.p99().Seconds()*1000, "free-p99-ms")
		b.ReportMetric(d.p99().Seconds()/alone.p99().Seconds(), "free-p99-of-alone")
	}
}
