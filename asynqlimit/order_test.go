package asynqlimit_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestFreshJobsQueueBehindTheLine: jobs keep coming while others are in line. How long the line
// lasts depends on the cost of its jobs and on the limit in Redis. No job starts more than a
// second before one that came earlier.
func TestFreshJobsQueueBehindTheLine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rate    string
		permits int
		inRedis int64 // permits of the limit that an operator has set; 0: as in the file
	}{
		"expensive": {rate: "100/1s", permits: 50},
		"lowered":   {rate: "200/1s", permits: 1, inRedis: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			s.serve(member{yaml: fmt.Sprintf(`
limits: { api: { rate: %s } }
jobs: { "x:limited": { limits: [api], permits: %d } }
`, c.rate, c.permits), asynq: asynq.Config{Concurrency: 20}})
			s.enqueue("x:limited", "first")
			s.awaitStarts("first", 1, 5*time.Second)
			if c.inRedis > 0 {
				l := s.limiter("api")
				r, err := l.Config(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				r.Permits = c.inRedis
				if err := l.SetRate(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			const old = 20
			for i := range old {
				s.enqueue("x:limited", fmt.Sprintf("old%02d", i))
			}
			began, fresh := time.Now(), 0
			tick := time.NewTicker(250 * time.Millisecond)
			defer tick.Stop()
			for len(s.seen("old")) < old && time.Since(began) < 20*time.Second {
				<-tick.C
				if time.Since(began) > 2*time.Second {
					s.enqueue("x:limited", fmt.Sprintf("new%02d", fresh))
					fresh++
				}
			}
			starts := s.awaitStarts("old", old, 30*time.Second)
			last := starts[old-1].at
			for _, st := range s.seen("new") {
				if before := last.Sub(st.at); before > time.Second {
					t.Errorf("%s, one of %d that came later, started %v before the last of those in line", st.id, fresh, before)
				}
			}
		})
	}
}

// TestMixedBacklogKeepsItsOrder: some jobs of a backlog park together, before a server takes them;
// others, here those with max_in_flight, have to be taken first, while all slots are busy. Two
// servers look at the same jobs. No job starts more than a second before one that was enqueued
// earlier.
func TestMixedBacklogKeepsItsOrder(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	const jobs = 400
	for i := range jobs {
		typ := "x:job"
		if i%10 == 9 {
			typ = "y:job"
		}
		s.enqueue(typ, fmt.Sprintf("job%03d", i))
	}
	m := member{yaml: `
limits: { api: { rate: 50/1s } }
jobs: { "x:": { limits: [api], hold: 100ms }, "y:": { limits: [api], hold: 100ms, max_in_flight: 20 } }
`, asynq: asynq.Config{Concurrency: 3}, handle: func(ctx context.Context, _ *asynq.Task) error {
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond): // the handlers keep all slots busy
		}
		return nil
	}}
	s.serve(m)
	s.serve(m)
	s.inOrder(jobs, 60*time.Second)
}

// TestOrderWhereTakesAreSlow: the answers of Redis reach one of two servers late, if they hold jobs that it takes. So these ask
// for their permits long after they left their queue. No job starts more than a second before one that came earlier.
func TestOrderWhereTakesAreSlow(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	m := member{yaml: "limits: { api: { rate: 50/1s, guard: 500ms } }\njobs: { \"x:\": { limits: [api] } }\n", asynq: asynq.Config{Concurrency: 5}}
	slow := m
	slow.name = "slow"
	slow.rdb = s.hooked(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if args := cmd.Args(); err == nil && len(args) > 6 && args[6] == "asynq:{default}:lease" { // not a peek
			time.Sleep(150 * time.Millisecond)
		}
		return err
	})
	s.serve(slow)
	s.enqueue("x:job", "first") // the first answer of a limit takes longer, because its server gets to know it
	s.awaitStarts("first", 1, 10*time.Second)
	goOn := s.stopLimit("api", "50/1s")
	s.serve(m)
	const jobs = 300
	for i := range jobs {
		s.enqueue("x:job", fmt.Sprintf("job%03d", i))
	}
	s.awaitWaiting("default", jobs)
	goOn()
	s.inOrder(jobs, 30*time.Second)
	if !slices.ContainsFunc(s.seen("job"), func(st start) bool { return st.server == "slow" }) {
		t.Error("the slow server started no job")
	}
}

// TestOrderOfTwoLimits: jobs need permits of a rate, and a slot of a limit in flight or one of max_in_flight. Either the rate is what most of them wait
// for, or the slots are. So some of them wait for one limit, and others for the other, and a job may have to wait for both in
// turn. No job starts more than a second before one that was enqueued earlier.
func TestOrderOfTwoLimits(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		rate, job string
		lasts     time.Duration
		servers   int // 0: one
	}{
		"few permits":            {rate: "20/1s", job: "limits: [api, seats], hold: 2s"},
		"few permits, no hold":   {rate: "20/1s", job: "limits: [api, seats], hold: 0"},
		"few slots, no hold":     {rate: "2/100ms", job: "limits: [api, seats], hold: 0", lasts: 300 * time.Millisecond},
		"few slots":              {rate: "2/100ms", job: "limits: [api, seats], hold: 2s", lasts: 300 * time.Millisecond},
		"few slots, in bursts":   {rate: "20/1s", job: "limits: [api, seats], hold: 2s", lasts: 300 * time.Millisecond},
		"few slots, two servers": {rate: "2/100ms", job: "limits: [api, seats], hold: 2s", lasts: 300 * time.Millisecond, servers: 2},
		"max_in_flight, no hold": {rate: "2/100ms", job: "limits: [api], max_in_flight: 3, hold: 0", lasts: 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			goOn := s.stopLimit("api", of.rate)
			const jobs = 100
			for i := range jobs {
				s.enqueue("x:job", fmt.Sprintf("job%03d", i), asynq.MaxRetry(0))
			}
			for n := range max(of.servers, 1) {
				s.serve(member{name: fmt.Sprint(n), yaml: fmt.Sprintf(`
limits: { api: { rate: %s, guard: 50ms }, seats: { in_flight: 3 } }
jobs: { "x:": { %s }, "y:": { limits: [seats] } }
`, of.rate, of.job), handle: lasting(of.lasts)})
			}
			s.awaitWaiting("default", jobs)
			goOn()
			s.inOrder(jobs, 40*time.Second)
		})
	}
}

// TestOrderBesideOtherLines: the first jobs need permits of a rate and a slot of a limit in flight. Behind them in the line for each
// of these stand many others, which need only the one, and take what there is as soon as it is free. The first jobs are not put off
// until those are gone, also if slots are free as rarely as permits.
func TestOrderBesideOtherLines(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		rate   string
		lasts  time.Duration
		within time.Duration // as long as there are others, if they queue behind these
	}{
		"short handlers": {"20/3s", 100 * time.Millisecond, 18 * time.Second},
		"long handlers":  {"20/5s", 3 * time.Second, 65 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, redistest.Start(t))
			goOn, free := s.stopLimit("api", of.rate), s.takeAllSlots("seat", 1)
			const first, others = 5, 200
			for i := range first {
				s.enqueue("x:both", fmt.Sprint("both", i))
			}
			for i := range others {
				s.enqueue("x:rate", fmt.Sprint("rate", i))
				s.enqueue("y:seat", fmt.Sprint("seat", i))
			}
			s.serve(member{yaml: fmt.Sprintf(`
limits: { api: { rate: %s }, seat: { in_flight: 1 } }
jobs: { "x:both": { limits: [api, seat] }, "x:rate": { limits: [api] }, "y:": { limits: [seat] } }
`, of.rate), handle: func(ctx context.Context, task *asynq.Task) error {
				if task.Type() == "x:rate" {
					return nil
				}
				return lasting(of.lasts)(ctx, task)
			}})
			s.awaitWaiting("default", first+2*others)
			goOn()
			free()
			s.awaitStarts("both", first, of.within)
		})
	}
}

// inOrder waits for the starts of so many jobs, "job000" and so on, and fails if one starts more than a second before one
// that came earlier, or not exactly once.
func (s *site) inOrder(jobs int, within time.Duration) {
	s.t.Helper()
	at := map[string]time.Time{}
	starts := s.awaitStarts("job", jobs, within)
	for _, st := range starts {
		at[st.id] = st.at
	}
	if len(starts) != jobs || len(at) != jobs {
		s.t.Errorf("%d starts of %d jobs, want %d", len(starts), len(at), jobs)
	}
	latest, of := time.Time{}, ""
	for i := range jobs {
		id := fmt.Sprintf("job%03d", i)
		if before := latest.Sub(at[id]); before > time.Second {
			s.t.Errorf("%s started %v before %s", id, before, of)
		}
		if at[id].After(latest) {
			latest, of = at[id], id
		}
	}
}
