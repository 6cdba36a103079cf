package worker

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// parkAsBefore parks tasks as the version before this one did: in asynq's retry
// set, with their names in a line of the limiter api.
func (f *fleet) parkAsBefore(queue string, n int, called bool) {
	f.t.Helper()
	ctx := f.t.Context()
	escaped := url.QueryEscape(queue)
	for i := range n {
		id := fmt.Sprint(queue, i)
		task := asynq.NewTask("x:limited", nil)
		info, err := f.client.Enqueue(task, asynq.TaskID(id), asynq.Queue(queue), asynq.ProcessIn(time.Hour))
		if err != nil {
			f.t.Fatal(err)
		}
		name := escaped + ":" + id
		if _, err := f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			if called && i == 0 {
				p.HSet(ctx, "{api}:parked:away", name, "1 1000")
			} else {
				p.ZAdd(ctx, "{api}:parked:line:"+escaped, redis.Z{Score: float64(i + 1), Member: name})
			}
			p.HSet(ctx, "{api}:parked:places", "last:"+escaped, i+1, "now", 0)
			p.HSet(ctx, "{api}:parked:kept", name, fmt.Sprintf("%d %d", 1_700_000_000_000+i, info.NextProcessAt.Unix()))
			p.HSet(ctx, "{api}:parked:cost", name, 2)
			p.ZAdd(ctx, "{jobthrottle:parked}:"+escaped, redis.Z{Score: 1000, Member: "api"})
			return nil
		}); err != nil {
			f.t.Fatal(err)
		}
	}
}

// TestAdoption: tasks that the version before this one has parked are seen, run
// and leave nothing behind, and those that park later queue behind them.
func TestAdoption(t *testing.T) {
	t.Parallel()
	f := newFleet(t, `
limits: { api: { rate: 40/1s } }
pools: [ { name: default, concurrency: 10, queues: {default: 1, "odd:one": 1} } ]
jobs: { "x:limited": { limits: [api] } }
log: { level: warn }
`)
	f.parkAsBefore("default", 60, true)
	f.parkAsBefore("odd:one", 10, false)
	goOn := f.limiter("api")
	if err := goOn.SetRate(t.Context(), throttle.Rate{Permits: 40, Interval: time.Second}); err != nil {
		t.Fatal(err)
	}
	if err := goOn.Pause(t.Context(), time.Hour); err != nil {
		t.Fatal(err)
	}
	f.work(nil)
	f.awaitThat(10*time.Second, func() (bool, string) {
		n := f.inLine("api")
		return n == 70, fmt.Sprintf("%d in line, want 70", n)
	})
	tasks, err := NewInspector(f.rdb).Parked(t.Context(), "api", 0, 100)
	if err != nil || len(tasks) != 70 || tasks[0].Permits != 2 || tasks[0].Since.Unix() != 1_700_000_000 {
		t.Errorf("%d parked, %v, %+v: want 70 that cost 2 each, since 2023", len(tasks), err, tasks[:min(len(tasks), 1)])
	}
	if e := f.explain("default5", `limit "api" holds it`); e.Ahead == nil {
		t.Errorf("%+v", *e)
	}
	if err := goOn.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.await(70, 20*time.Second)
	f.awaitIdle("default", 0)
	f.awaitIdle("odd:one", 0)
	f.awaitThat(10*time.Second, func() (bool, string) {
		keys := append(f.rdb.Keys(t.Context(), "*:jt:*").Val(), f.rdb.Keys(t.Context(), "*parked*").Val()...)
		return len(keys) == 0, fmt.Sprintf("keys left: %v", keys)
	})
}
