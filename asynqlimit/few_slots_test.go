package asynqlimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
)

const hundredPerSecond = `
limits: { api: { rate: 100/1s, guard: 100ms } }
jobs: { "x:limited": { limits: [api] } }
`

// TestQueueOfFewSlots: two servers share a limit, each with a queue of its own and a backlog. One has few slots. It gets what
// they can use, and the other gets the rest.
func TestQueueOfFewSlots(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	goOn := s.stopLimit("api", "100/1s")
	const jobs, lasts = 300, 500 * time.Millisecond
	s.serve(member{yaml: hundredPerSecond, asynq: asynq.Config{Concurrency: 1, Queues: map[string]int{"bulk": 1}}, handle: lasting(lasts)})
	s.serve(member{yaml: hundredPerSecond, asynq: asynq.Config{Concurrency: 50, Queues: map[string]int{"web": 1}}})
	s.fill(jobs, "bulk", "web")
	goOn()
	began := time.Now()
	s.awaitStarts("web", jobs, 30*time.Second)
	took, bulk := time.Since(began), len(s.seen("bulk"))
	t.Logf("%d jobs took %v, beside %d of the queue with one slot", jobs, took, bulk)
	if took > 5*time.Second { // 3.3 s by the limit and its guard
		t.Errorf("%d jobs took %v", jobs, took)
	}
	if bulk < int(took/lasts)-2 {
		t.Errorf("the slot was free: %d jobs of %v each in %v", bulk, lasts, took)
	}
}

// fill enqueues so many limited jobs to each queue, in turn, and waits until all of them wait.
func (s *site) fill(jobs int, queues ...string) {
	s.t.Helper()
	for i := range jobs {
		for _, queue := range queues {
			s.enqueue("x:limited", fmt.Sprint(queue, i), asynq.Queue(queue))
		}
	}
	for _, queue := range queues {
		s.awaitWaiting(queue, jobs)
	}
}

// TestShareOfUnequalServers: a queue that several servers serve, large and small ones, gets about its part of a limit by weight,
// although the permits come faster for a while than its servers have slots for its jobs.
func TestShareOfUnequalServers(t *testing.T) { // not beside others: it watches how fast jobs start
	s := newSite(t, redistest.Start(t))
	goOn := s.stopLimit("api", "100/1s")
	const jobs, starts = 300, 300
	for _, slots := range []int{20, 1, 2} {
		s.serve(member{yaml: hundredPerSecond, asynq: asynq.Config{Concurrency: slots, Queues: map[string]int{"web": 4}}, handle: lasting(50 * time.Millisecond)})
	}
	s.serve(member{yaml: hundredPerSecond, asynq: asynq.Config{Concurrency: 20, Queues: map[string]int{"bulk": 1}}, handle: lasting(50 * time.Millisecond)})
	s.fill(jobs, "bulk", "web")
	goOn()
	began := time.Now()
	s.awaitStarts("", starts, 20*time.Second)
	web, bulk := len(s.seen("web")), len(s.seen("bulk"))
	t.Logf("%d of web, %d of bulk in %v", web, bulk, time.Since(began))
	if web < starts*70/100 || bulk < starts*12/100 {
		t.Errorf("%d starts of the queue of weight 4, %d of that of weight 1", web, bulk)
	}
}

// TestStrictQueueOfFewJobs: jobs of the queue that comes first come one at a time, and wait in line. Meanwhile those of the
// other queue go on.
func TestStrictQueueOfFewJobs(t *testing.T) { // not beside others: it watches how fast jobs start
	s := newSite(t, redistest.Start(t))
	goOn := s.stopLimit("api", "5/100ms")
	const jobs, lasts = 300, 3 * time.Second
	s.serve(member{yaml: `
limits: { api: { rate: 5/100ms } }
jobs: { "x:limited": { limits: [api], hold: 0s } }
`, asynq: asynq.Config{StrictPriority: true, Queues: map[string]int{"critical": 2, "low": 1}}})
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprint("low", i), asynq.Queue("low"))
	}
	s.awaitWaiting("low", jobs)
	goOn()
	s.awaitStarts("low", 1, 5*time.Second)
	began, before := time.Now(), len(s.seen("low"))
	tick := time.NewTicker(lasts / 4)
	defer tick.Stop()
	for i := range 4 {
		s.enqueue("x:limited", fmt.Sprint("critical", i), asynq.Queue("critical"))
		<-tick.C
	}
	took, low := time.Since(began), len(s.seen("low"))-before
	all := float64(low+len(s.seen("critical"))) / (50 * took.Seconds())
	t.Logf("%d of low, %.0f %% of the limit", low, 100*all)
	s.awaitStarts("critical", 4, 2*time.Second)
	if all < 0.75 {
		t.Errorf("%.0f %% of the limit was used while jobs that come first wait", 100*all)
	}
}

// TestSlotsOfManyKeys: jobs of many customers wait for slots, in more lines than a pass reads. When a slot of one of them
// becomes free, its job starts.
func TestSlotsOfManyKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const customers = 1100
	c, err := throttle.New(s.rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	var last *throttle.Lease
	for i := range customers {
		slots, err := c.InFlight(fmt.Sprint("crm:", i), throttle.Slots{Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		if last, err = slots.Acquire(t.Context(), "holder"); err != nil {
			t.Fatal(err)
		}
		s.enqueuePayload("x:customer", fmt.Sprint("job", i), fmt.Appendf(nil, `{"customer": "%d"}`, i))
	}
	s.serve(member{yaml: `
limits: { crm: { in_flight: 1, key: payload.customer } }
jobs: { "x:customer": { limits: [crm], hold: 0s } }
`, asynq: asynq.Config{Concurrency: 50}})
	s.awaitWaiting("default", customers)
	if err := last.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	s.awaitStarts("job", 1, 15*time.Second)
	t.Logf("%v", time.Since(began))
}
