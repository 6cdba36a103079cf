package asynqlimit_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestSlotLineOfTheDead: processes that were killed while their jobs stood in line for a slot hold up nobody. When
// the lease of the slot is over, the next job starts.
func TestSlotLineOfTheDead(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	ctx := t.Context()
	killed, err := throttle.New(s.rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	slots, err := killed.InFlight("one", throttle.Slots{Limit: 1, Lease: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slots.Acquire(ctx, "holder"); err != nil {
		t.Fatal(err)
	}
	s.serve(member{yaml: `
limits: { one: { in_flight: 1, lease: 3s } }
jobs: { "x:limited": { limits: [one], hold: 100ms } }
`})
	const jobs = 3
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprint("job", i))
	}
	s.awaitWaiting("default", jobs)
	for _, dead := range []string{"dead-1 job1", "dead-2 job2"} {
		if err := s.rdb.Do(ctx, "ZADD", "{one}:line", "1", dead).Err(); err != nil {
			t.Fatal(err)
		}
	}
	killed.Close() // nobody renews its lease any more, or gives it back
	s.awaitStarts("", jobs, 8*time.Second)
}

// TestSlotsAreRaised: a process with a new configuration raises a limit in flight, although those with the old one
// have all slots of it for a long time.
func TestSlotsAreRaised(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	s.takeAllSlots("one", 1)
	const yaml = `
limits: { one: { in_flight: %d } }
jobs: { "x:limited": { limits: [one], hold: 100ms } }
`
	stop := s.serve(member{yaml: fmt.Sprintf(yaml, 1)})
	const jobs, raised = 3, 3
	for i := range jobs {
		s.enqueue("x:limited", fmt.Sprint("job", i))
	}
	s.awaitWaiting("default", jobs)
	stop()
	s.serve(member{yaml: fmt.Sprintf(yaml, raised), handle: lasting(time.Minute)})
	s.awaitStarts("", raised-1, 5*time.Second)
}
