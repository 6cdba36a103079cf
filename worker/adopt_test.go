package worker

import (
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// parkAsBefore parks tasks as the version before this one did: in asynq's retry
// set, with their names in the one line of the limiter api.
func (f *fleet) parkAsBefore(queue string, n int, called bool) {
	f.t.Helper()
	ctx := f.t.Context()
	for i := range n {
		id := fmt.Sprint(queue, i)
		task := asynq.NewTask("x:limited", nil)
		if _, err := f.client.Enqueue(task, asynq.TaskID(id), asynq.Queue(queue), asynq.ProcessIn(time.Hour)); err != nil {
			f.t.Fatal(err)
		}
		name := url.QueryEscape(queue) + ":" + id
		if _, err := f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			if called && i == 0 {
				p.HSet(ctx, "{api}:parked:called", name, "1 1000")
			} else {
				p.ZAdd(ctx, "{api}:parked", redis.Z{Score: float64(i + 1), Member: name})
				p.HIncrBy(ctx, "{api}:parked:clock", "count:"+queue, 1)
			}
			p.HSet(ctx, "{api}:parked:clock", "last:"+queue, i+1)
			p.HSet(ctx, "{api}:parked:since", name, 1_700_000_000_000+i)
			p.HSet(ctx, "{api}:parked:costs", name, 2)
			p.ZAdd(ctx, "jobthrottle:parked", redis.Z{Score: 1000, Member: "api"})
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
	if n := f.inLine("api"); n != 70 {
		t.Errorf("%d in line before they are moved, want 70", n)
	}
	tasks, err := NewInspector(f.rdb).Parked(t.Context(), "api", 0, 100)
	if err != nil || len(tasks) != 69 || tasks[0].Permits != 2 || tasks[0].Since.Unix() != 1_700_000_000 {
		t.Errorf("%d parked, %v, %+v: want 69 that cost 2 each, since 2023", len(tasks), err, tasks[:min(len(tasks), 1)])
	}
	if e := f.explain("default5", `limit "api" holds it`); e.Ahead == nil {
		t.Errorf("%+v", *e)
	}
	f.work(nil)
	f.await(70, 20*time.Second)
	f.awaitIdle("default", 0)
	f.awaitIdle("odd:one", 0)
	f.awaitThat(10*time.Second, func() (bool, string) {
		keys := f.rdb.Keys(t.Context(), "*parked*").Val()
		return len(keys) == 0, fmt.Sprintf("keys left: %v", keys)
	})
}

// TestAdoptionLeavesOldWorkersTheirLine: while a worker of the version before
// this one looks at its lines, nobody takes them from it.
func TestAdoptionLeavesOldWorkersTheirLine(t *testing.T) {
	if got := abandoned(nil, map[string]float64{"a": 1}); len(got) != 0 {
		t.Errorf("seen once, %q are abandoned", got)
	}
	before := map[string]float64{"gone": 1, "abandoned": 2, "looked": 3}
	if got := abandoned(before, map[string]float64{"abandoned": 2, "looked": 3.5, "new": 0.001}); len(got) != 1 || got[0] != "abandoned" {
		t.Errorf("%q are abandoned", got)
	}
}
