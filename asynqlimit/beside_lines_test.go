package asynqlimit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestBacklogsBesideAnOverallLimit: two customers have backlogs that their own limits hold, a third has one job behind
// them. It starts at once, because the limit of all has permits: the backlogs wait in lines of their own.
func TestBacklogsBesideAnOverallLimit(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"api, plan", "plan, api"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			job := func(customer string, i int) {
				s.enqueuePayload("x:job", fmt.Sprintf("%s%04d", customer, i), fmt.Appendf(nil, `{"account": %q}`, customer))
			}
			for _, customer := range []string{"beta", "acme"} {
				for i := range 1500 {
					job(customer, i)
				}
			}
			job("zenith", 0)
			s.serve(member{yaml: fmt.Sprintf(`
limits: { api: { rate: 100/1s }, plan: { rate: 5/1h, key: payload.account } }
jobs: { "x:job": { limits: [%s] } }
`, first), asynq: asynq.Config{Concurrency: 2}, handle: lasting(100 * time.Millisecond)})
			s.awaitStarts("zenith", 1, 10*time.Second)
			for _, customer := range []string{"beta", "acme"} {
				s.awaitStarts(customer, 5, 10*time.Second)
			}
			s.await(10*time.Second, func() (bool, string) {
				n := s.rdb.ZCard(t.Context(), "asynq:{default}:jt:line:api").Val()
				return n == 0, fmt.Sprint(n, " jobs wait for the limit of all")
			})
		})
	}
}

// TestUsedUpLinesHoldUpNoOther: hundreds of accounts have used up their limits and have jobs in line. The jobs of another
// limit start as fast as it allows, in a worker with few slots.
func TestUsedUpLinesHoldUpNoOther(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const accounts, jobs = 400, 150
	goOn := s.stopLimit("api", "50/1s")
	for _, round := range []string{"a", "b"} {
		for i := range accounts {
			s.enqueuePayload("x:account", fmt.Sprint(round, i), fmt.Appendf(nil, `{"account": "%d"}`, i))
		}
	}
	for i := range jobs {
		s.enqueue("y:api", fmt.Sprintf("api%03d", i))
	}
	s.serve(member{yaml: `
limits: { account: { rate: 1/1h, key: payload.account }, api: { rate: 50/1s } }
jobs: { "x:account": { limits: [account] }, "y:api": { limits: [api] } }
`, asynq: asynq.Config{Concurrency: 5}, handle: lasting(50 * time.Millisecond)})
	s.awaitWaiting("default", accounts+jobs)
	goOn()
	starts := s.awaitStarts("api", jobs, 8*time.Second) // 3 s by the limit
	t.Logf("%d in %v", jobs, starts[jobs-1].at.Sub(starts[0].at))
}

// TestLinesTakeTurns: there are permits for the jobs of many accounts, and slots for few of them. Each account gets slots in
// its turn, whatever its name, and though the limits of many others are used up.
func TestLinesTakeTurns(t *testing.T) {
	t.Parallel()
	for _, usedUp := range []int{0, 300} {
		t.Run(fmt.Sprint(usedUp, " used up"), func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			const accounts, each = 40, 10
			job := func(account string, i int) {
				s.enqueuePayload("x:account", fmt.Sprintf("%s-%d", account, i), fmt.Appendf(nil, `{"account": %q}`, account))
			}
			var goOn []func()
			for a := range accounts {
				goOn = append(goOn, s.stopLimit(fmt.Sprintf("account:a%02d", a), "100/1s"))
			}
			for a := range usedUp {
				s.stopLimit(fmt.Sprintf("account:b%03d", a), "100/1s")
				job(fmt.Sprintf("b%03d", a), 0)
			}
			for i := range each {
				for a := range accounts {
					job(fmt.Sprintf("a%02d", a), i)
				}
			}
			s.serve(member{yaml: `
limits: { account: { rate: 100/1s, key: payload.account } }
jobs: { "x:account": { limits: [account] } }
`, asynq: asynq.Config{Concurrency: 4}, handle: lasting(40 * time.Millisecond)})
			s.awaitWaiting("default", accounts*each+usedUp)
			for _, f := range goOn {
				f()
			}
			s.awaitStarts("a", accounts*each*2/3, 20*time.Second)
			fewest := each
			for a := range accounts {
				fewest = min(fewest, len(s.seen(fmt.Sprintf("a%02d", a))))
			}
			t.Logf("%d of %d", fewest, each)
			if fewest < each/5 {
				t.Errorf("when two thirds had started, %d of the %d jobs of an account had", fewest, each)
			}
		})
	}
}

// TestSlotLinesOfManyKeys: many customers have backlogs that wait for slots of a limit in flight, one each. Their queue gets
// no more of the worker's slots than its weight says.
func TestSlotLinesOfManyKeys(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const customers, each, fresh, starts = 50, 3, 120, 40
	var free []func()
	for c := range customers {
		free = append(free, s.takeAllSlots(fmt.Sprintf("one:%02d", c), 2))
		for i := range each {
			s.enqueuePayload("x:one", fmt.Sprintf("bulk%d-%02d", i, c), fmt.Appendf(nil, `{"customer": "%02d"}`, c), asynq.Queue("bulk"))
		}
	}
	for i := range fresh {
		s.enqueue("y:free", fmt.Sprintf("fresh%03d", i), asynq.Queue("fresh"))
	}
	if err := s.inspector.PauseQueue("fresh"); err != nil {
		t.Fatal(err)
	}
	s.serve(member{yaml: `
limits: { one: { in_flight: 2, key: payload.customer } }
jobs: { "x:one": { limits: [one], hold: 0s } }
`, asynq: asynq.Config{Concurrency: 4, Queues: map[string]int{"fresh": 6, "bulk": 1}}, handle: lasting(time.Second)})
	s.awaitWaiting("bulk", customers*each)
	if err := s.inspector.UnpauseQueue("fresh"); err != nil {
		t.Fatal(err)
	}
	s.awaitStarts("fresh", 4, 10*time.Second)
	for _, f := range free {
		f()
	}
	s.awaitStarts("bulk", 1, 30*time.Second)
	before := len(s.seen(""))
	s.await(30*time.Second, func() (bool, string) {
		n := len(s.seen(""))
		return n >= before+starts, fmt.Sprint(n)
	})
	n := 0
	for _, st := range s.seen("")[before : before+starts] {
		if strings.HasPrefix(st.id, "fresh") {
			n++
		}
	}
	t.Logf("%d of %d", n, starts)
	if n < starts*4/10 { // 6 of 7 by the weights, if the slots became free one after the other
		t.Errorf("%d of %d starts were those of a queue of weight 6 beside one of weight 1", n, starts)
	}
}
