package asynqlimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/producer"
)

const sharesConfig = `
limits: { api: { rate: %s, guard: 100ms, share: payload.tenant, weights: { heavy: 5, middle: 3 } } }
jobs: { x: { limits: [api], permits: payload.cost }, y: { limits: [api] } }
`

func tenantPayload(tenant string) []byte { return fmt.Appendf(nil, `{"tenant":%q}`, tenant) }

// TestNewcomerIsNotBehindOthers: one tenant's 1500 jobs come before 15 of another, and the limit
// gives 100 a second. The 15 do not wait for the 1500. Nor do 15 jobs of a third tenant that come
// while the others are in line.
func TestNewcomerIsNotBehindOthers(t *testing.T) {
	onBoth(t, func(s *site) {
		var tasks []*asynq.Task
		for range 1500 {
			tasks = append(tasks, asynq.NewTask("y", tenantPayload("hog")))
		}
		for i, task := range tasks {
			if _, err := s.client.Enqueue(task, asynq.TaskID(fmt.Sprintf("hog-%04d", i))); err != nil {
				s.t.Fatal(err)
			}
		}
		newcomers := func(tenant string) {
			for i := range 15 {
				s.enqueuePayload("y", fmt.Sprintf("%s-%02d", tenant, i), tenantPayload(tenant))
			}
		}
		// ahead returns how many jobs of the first tenant start while the newcomer's jobs wait in
		// line, however long it takes them to get there. Jobs are called 200 ms before their permits are
		// due: those that start sooner, perhaps a whole burst, were called before the newcomer's were in line.
		const called = 300 * time.Millisecond
		ahead := func(tenant string, since time.Time) (n int) {
			starts := s.awaitStarts(tenant+"-", 15, 30*time.Second)
			last := slices.MaxFunc(starts, func(a, b start) int { return a.at.Compare(b.at) }).at
			for _, other := range s.seen("hog-") {
				if other.at.After(since.Add(called)) && other.at.Before(last) {
					n++
				}
			}
			return n
		}
		inLine := func() time.Time {
			s.await(30*time.Second, func() (bool, string) {
				q := s.queue("default")
				return q.Pending == 0, fmt.Sprintf("%+v", q)
			})
			return time.Now()
		}

		newcomers("small")
		goOn, began := s.stopLimit("api", "100/1s"), time.Now() // none starts while they park
		for i := range 3 {
			s.serve(member{name: fmt.Sprint(i), yaml: fmt.Sprintf(sharesConfig, "100/1s")})
		}
		inLine()
		goOn()
		all := time.Now()
		small := ahead("small", all)
		newcomers("late")
		late := ahead("late", inLine())
		s.t.Logf("all were in line after %v; then %d of the others started before the 15, and %d before the 15 that came late", all.Sub(began), small, late)
		if small > 100 || late > 100 { // if tenants take turns it is about 15
			s.t.Errorf("%d and %d of the others started while the 15 waited in line", small, late)
		}
		s.awaitStarts("hog-", 400, 20*time.Second)
		if most := busiest(s.seen(""), 950*time.Millisecond); most > 100 {
			s.t.Errorf("%d starts within 950ms, want at most 100", most)
		}
	})
}

// busyRedis makes commands wait for each other, like a busy Redis: each command of a pipeline
// takes a while, and so does each task that parks.
type busyRedis struct {
	hook
	each time.Duration
	one  *sync.Mutex
}

func (b busyRedis) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		b.one.Lock()
		if n := parked(cmd); n > 0 {
			<-time.After(time.Duration(n) * b.each)
		}
		b.one.Unlock()
		return next(ctx, cmd)
	}
}

func (b busyRedis) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		b.one.Lock()
		<-time.After(time.Duration(len(cmds)) * b.each)
		b.one.Unlock()
		return next(ctx, cmds)
	}
}

// TestLimitIsUsedWhileJobsReachTheLine: jobs of tenants, with different costs, come faster than
// they can park on a busy Redis. Jobs that are called meanwhile do not wait behind them.
func TestLimitIsUsedWhileJobsReachTheLine(t *testing.T) {
	s := newSite(t, redistest.Start(t))
	random := rand.New(rand.NewPCG(1, 2))
	stream := producer.New(s.rdb).Stream(t.Context(), producer.StreamEvents{Done: func(producer.Result) {}, Outage: func(error) {}})
	const jobs = 8_000
	for i := range jobs {
		tenant := []string{"heavy", "middle", "light"}[i%3]
		payload := fmt.Appendf(nil, `{"tenant":%q,"cost":%d}`, tenant, 1+random.Int64N(int64(9-3*(i%3))))
		if err := stream.Add(i+1, producer.Job{Type: "x", Payload: payload}); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.Close(); err != nil {
		t.Fatal(err)
	}
	var used atomic.Int64
	busy := busyRedis{each: time.Millisecond, one: &sync.Mutex{}}
	for i := range 4 {
		rdb := redis.NewClient(s.rdb.Options())
		t.Cleanup(func() { rdb.Close() })
		rdb.AddHook(busy)
		s.serve(member{name: fmt.Sprint(i), rdb: rdb, asynq: asynq.Config{Concurrency: 20}, yaml: fmt.Sprintf(sharesConfig, "200/1s"), handle: func(_ context.Context, task *asynq.Task) error {
			var p struct{ Cost int64 }
			if err := json.Unmarshal(task.Payload(), &p); err != nil {
				return err
			}
			used.Add(p.Cost)
			return nil
		}})
	}
	s.awaitStarts("", 1, 10*time.Second)
	s.await(10*time.Second, func() (bool, string) { // they park
		q := s.queue("default")
		return q.Retry > 500, fmt.Sprintf("%+v", q)
	})
	began, before := time.Now(), used.Load()
	<-time.After(3 * time.Second)
	got, took := used.Load()-before, time.Since(began)
	q := s.queue("default")
	t.Logf("used %.1f %% of the limit, while %d of %d jobs were not in line", 100*float64(got)/200/took.Seconds(), q.Pending, jobs)
	if q.Pending == 0 {
		t.Fatal("all jobs had reached the line")
	}
	if float64(got) < 0.4*200*took.Seconds() {
		t.Errorf("%d permits were used in %v, of 200 a second", got, took)
	}
}
