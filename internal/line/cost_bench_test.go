package line

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// BenchmarkScripts measures what each script costs Redis, in microseconds of its own CPU for a
// task: the way of a backlog through its line, and that of tasks that were taken before they
// parked.
func BenchmarkScripts(b *testing.B) {
	const tasks, batch = 10_000, 200
	for range b.N {
		rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(b)})
		defer rdb.Close()
		ctx, lines := b.Context(), New(rdb)
		client := asynq.NewClientFromRedisClient(rdb)
		enqueue := func() {
			for range tasks {
				if _, err := client.Enqueue(asynq.NewTask("bench:job", []byte(`{"account":7}`))); err != nil {
					b.Fatal(err)
				}
			}
		}
		how := func(task Taken) ToPark {
			text, _ := task.Message.(string)
			return ToPark{ID: task.ID, Message: WithError(text, "api: no permits for 5s", time.Now()), How: Parking{Line: "api", Since: task.At, By: task.By, AtOnce: true}}
		}
		leases := time.Now().Add(time.Hour).Unix()
		measure := func(name string, step func() int) {
			before, done := cpu(ctx, b, rdb), 0
			for done < tasks {
				n := step()
				if n == 0 {
					b.Fatalf("%s: %d of %d tasks", name, done, tasks)
				}
				done += n
			}
			b.ReportMetric((cpu(ctx, b, rdb)-before)/tasks, name+"-us/task")
		}
		take := func(most int) []Taken {
			taken, err := lines.Take(ctx, "default", leases, most, false)
			if err != nil {
				b.Fatal(err)
			}
			return taken
		}
		end := func(taken []Taken) {
			for _, t := range taken {
				pipe := rdb.Pipeline()
				pipe.LRem(ctx, activeKey("default"), 0, t.ID)
				pipe.ZRem(ctx, leaseKey("default"), t.ID)
				pipe.Del(ctx, TaskKey("default", t.ID))
				if _, err := pipe.Exec(ctx); err != nil {
					b.Fatal(err)
				}
			}
		}
		enqueue()
		measure("peek", func() int {
			seen, _, _, err := lines.Peek(ctx, "default", "p", batch, 0, time.Second)
			if err != nil {
				b.Fatal(err)
			}
			return len(seen)
		})
		measure("peek-and-park", func() int {
			seen, _, _, err := lines.Peek(ctx, "default", "p", batch, 0, time.Second)
			if err != nil {
				b.Fatal(err)
			}
			park := make([]ToPark, len(seen))
			for i, t := range seen {
				park[i] = how(t)
			}
			parked, err := lines.ParkPending(ctx, "default", park)
			if err != nil || slices.Contains(parked, false) {
				b.Fatal(parked, err)
			}
			return len(seen)
		})
		bring := func() int {
			got, err := lines.Bring(ctx, []string{"default"}, [][]Visit{{{Line: "api", Permits: 25, Next: time.Second}}})
			if err != nil {
				b.Fatal(err)
			}
			return int(got[0][0].Called)
		}
		brings, takes := 0.0, 0.0
		for done := 0; done < tasks; { // in rounds: while many are on their way, no others are called
			before, called := cpu(ctx, b, rdb), 0
			for range 8 {
				called += bring()
			}
			between := cpu(ctx, b, rdb)
			var taken []Taken
			for len(taken) < called {
				taken = append(taken, take(25)...)
			}
			brings, takes, done = brings+between-before, takes+cpu(ctx, b, rdb)-between, done+called
			end(taken)
		}
		b.ReportMetric(brings/tasks, "bring-us/task")
		b.ReportMetric(takes/tasks, "take-called-us/task")
		enqueue()
		measure("take-and-park", func() int {
			taken := take(batch)
			park := make([]ToPark, len(taken))
			for i, t := range taken {
				park[i] = how(t)
			}
			if parked, err := lines.ParkAll(ctx, "default", park); err != nil || slices.Contains(parked, false) {
				b.Fatal(parked, err)
			}
			return len(taken)
		})
	}
}

// cpu is what the scripts of a server have used, in microseconds.
func cpu(ctx context.Context, b *testing.B, rdb *redis.Client) float64 {
	b.Helper()
	info, err := rdb.Info(ctx, "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	sum := 0.0
	for line := range strings.Lines(info) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_eval"); ok {
			_, usec, _ := strings.Cut(rest, "usec=")
			usec, _, _ = strings.Cut(usec, ",")
			n, err := strconv.ParseFloat(usec, 64)
			if err != nil {
				b.Fatal(fmt.Errorf("commandstats: %q: %w", line, err))
			}
			sum += n
		}
	}
	return sum
}

// BenchmarkShareBesideOthers measures what it costs Redis, in microseconds of its own CPU, to share the permits
// of a limiter with queues of other processes, for a process that has no capacity.
func BenchmarkShareBesideOthers(b *testing.B) {
	const queues, calls = 50, 20
	for range b.N {
		rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(b)})
		defer rdb.Close()
		ctx, lines := b.Context(), New(rdb)
		share := func(queue string) {
			if _, err := lines.Share(ctx, []Sharing{{Limiter: "api", Due: 5000, Queues: []Demand{{Queue: queue, Weight: 1, Left: 10_000, Cost: 1}}}}); err != nil {
				b.Fatal(err)
			}
		}
		for i := range queues {
			share(fmt.Sprint("other", i))
		}
		before := cpu(ctx, b, rdb)
		for range calls {
			share("own")
		}
		b.ReportMetric((cpu(ctx, b, rdb)-before)/calls, "us/call")
	}
}
