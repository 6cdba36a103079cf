package line

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// before writes what the version before this one writes.
type before struct {
	t   *testing.T
	rdb *redis.Client
}

// enqueue adds a task that waits, and returns when asynq brings it back.
func (b before) enqueue(queue, id string) int64 {
	b.t.Helper()
	info, err := asynq.NewClientFromRedisClient(b.rdb).Enqueue(asynq.NewTask("x", nil), asynq.TaskID(id), asynq.Queue(queue), asynq.ProcessIn(time.Hour))
	if err != nil {
		b.t.Fatal(err)
	}
	return info.NextProcessAt.Unix()
}

// park puts a task in its line of the limiter api.
func (b before) park(queue, id string, position int, back int64) {
	b.t.Helper()
	ctx, escaped := b.t.Context(), url.QueryEscape(queue)
	if _, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAdd(ctx, "{api}:parked:line:"+escaped, redis.Z{Score: float64(position), Member: escaped + ":" + id})
		p.HSet(ctx, "{api}:parked:kept", escaped+":"+id, fmt.Sprintf("%d %d", 1_700_000_000_000+position, back))
		p.HSet(ctx, "{api}:parked:places", "last:"+escaped, position, "now", 0, "looked:"+escaped, 1)
		p.ZIncrBy(ctx, "{jobthrottle:parked}:"+escaped, 0.001, "api")
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
}

// state puts a task into a list of asynq's, as its server does when it takes the task, or into a
// set of tasks that wait.
func (b before) state(queue, id, state string, back int64) {
	b.t.Helper()
	ctx, prefix := b.t.Context(), queuePrefix(queue)
	if _, err := b.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.ZRem(ctx, prefix+"scheduled", id)
		p.LRem(ctx, prefix+"active", 0, id)
		if state == "active" {
			p.LPush(ctx, prefix+state, id)
		} else {
			p.ZAdd(ctx, prefix+state, redis.Z{Score: float64(back), Member: id})
		}
		p.HSet(ctx, TaskKey(queue, id), "state", state)
		return nil
	}); err != nil {
		b.t.Fatal(err)
	}
}

func (b before) keys() []string { return b.rdb.Keys(b.t.Context(), "*parked*").Val() }

func startBefore(t *testing.T) (before, *Lines) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	t.Cleanup(func() { rdb.Close() })
	return before{t, rdb}, New(rdb)
}

func (b before) adopt(l *Lines, queue string, want int64) {
	b.t.Helper()
	if n, err := l.Adopt(b.t.Context(), queue); err != nil || n != want {
		b.t.Errorf("took over %d of queue %q, %v; want %d", n, queue, err, want)
	}
}

// TestAdoptTakesTasksThatAreParkedMeanwhile: a worker of the version before this one notes a task
// in its line before asynq has it in its retry set. If the line is taken over in between, the
// task is left for the next time.
func TestAdoptTakesTasksThatAreParkedMeanwhile(t *testing.T) {
	b, l := startBefore(t)
	const waiting = 2*adoptBatch + 10
	backs := map[string]int64{}
	for i := range waiting {
		id := fmt.Sprint("task", i)
		backs[id] = b.enqueue("q", id)
		b.park("q", id, i, backs[id])
	}
	for _, id := range []string{"task0", "task700", "task1009"} {
		b.state("q", id, "active", 0)
	}
	b.adopt(l, "q", waiting-3)
	for id := range backs {
		if b.rdb.HGet(t.Context(), TaskKey("q", id), "state").Val() == "active" {
			b.state("q", id, "retry", backs[id])
		}
	}
	b.adopt(l, "q", 3)
	if keys := b.keys(); len(keys) > 0 {
		t.Errorf("keys left: %v", keys)
	}
	tasks, err := l.Tasks(t.Context(), "q", "api", 0, waiting)
	if err != nil || len(tasks) != waiting {
		t.Fatalf("%d of %d in line, %v", len(tasks), waiting, err)
	}
	for i, task := range tasks {
		if task.ID != fmt.Sprint("task", i) {
			t.Fatalf("%s is at position %d", task.ID, i)
		}
	}
}

// TestAdoptLeavesOtherQueuesTheirPlaces: if only workers of the version before this one serve a
// queue, what they have noted about it stays.
func TestAdoptLeavesOtherQueuesTheirPlaces(t *testing.T) {
	b, l := startBefore(t)
	b.park("mine", "a", 7, b.enqueue("mine", "a"))
	b.park("odd: %", "b", 9, b.enqueue("odd: %", "b"))
	b.adopt(l, "mine", 1)
	ends := b.rdb.HGetAll(t.Context(), "{api}:parked:places").Val()
	if _, there := ends["last:mine"]; there || ends["last:"+url.QueryEscape("odd: %")] != "9" || ends["now"] != "0" {
		t.Errorf("positions: %v", ends)
	}
	b.adopt(l, "odd: %", 1)
	if keys := b.keys(); len(keys) > 0 {
		t.Errorf("keys left: %v", keys)
	}
}

// between calls meanwhile before the first HMGet.
type between struct {
	redis.UniversalClient
	meanwhile func()
}

func (b *between) HMGet(ctx context.Context, key string, fields ...string) *redis.SliceCmd {
	if f := b.meanwhile; f != nil {
		b.meanwhile = nil
		f()
	}
	return b.UniversalClient.HMGet(ctx, key, fields...)
}

// TestTwoAdopt: two new workers take a line over at the same time. Each task is taken over once,
// and keeps its arrival. A task that has failed since, and is to be tried again later, is not
// called before that.
func TestTwoAdopt(t *testing.T) {
	b, first := startBefore(t)
	const waiting = 5
	for i := range waiting {
		id := fmt.Sprint("task", i)
		b.park("q", id, i, b.enqueue("q", id))
	}
	failed := fmt.Sprint("task", waiting-1)
	second := New(&between{b.rdb, func() {
		b.adopt(first, "q", waiting)
		b.rdb.ZRem(t.Context(), lineKey("q", "api"), failed)
		b.rdb.HSet(t.Context(), TaskKey("q", failed), "jt", "a 1 0 0 1 0 api")
	}})
	b.adopt(second, "q", 0)
	tasks, err := first.Tasks(t.Context(), "q", "api", 0, waiting)
	if err != nil || len(tasks) != waiting-1 {
		t.Fatalf("%+v, %v", tasks, err)
	}
	for i, task := range tasks {
		if task.ID != fmt.Sprint("task", i) || task.Since.UnixMilli() != int64(1_700_000_000_000+i) {
			t.Errorf("position %d: %+v", i, task)
		}
	}
	if keys := b.keys(); len(keys) > 0 {
		t.Errorf("keys left: %v", keys)
	}
}
