package line

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// restless moves things in Redis before each command of a client, as a fleet does.
type restless struct{ move func() }

func (r restless) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r restless) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.move()
		return next(ctx, cmd)
	}
}

func (r restless) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		r.move()
		return next(ctx, cmds)
	}
}

// TestShelfWhileTasksMove: whoever reads a shelf part by part sees each task that stays, however
// many tasks are added and removed at both ends before each command.
func TestShelfWhileTasksMove(t *testing.T) {
	const stay, atOnce, moves = 60, 7, 3
	addr := redistest.Start(t)
	rdb, calm := redis.NewClient(&redis.Options{Addr: addr}), redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close(); calm.Close() })
	ctx, random := t.Context(), rand.New(rand.NewPCG(1, 2))
	name := func(i int) string { return fmt.Sprintf("stays%02d", i) }
	var before, behind []string
	for i := range 200 {
		before, behind = append(before, fmt.Sprintf("a%03d", i)), append(behind, fmt.Sprintf("z%03d", i))
	}
	inZSet := func(queue, key string) (fill, move func()) {
		add := func(id string, score float64) {
			calm.ZAdd(ctx, queuePrefix(queue)+key, redis.Z{Score: score, Member: id})
		}
		gone := 0
		return func() {
				for i := range stay {
					add(name(i), float64(1000+i/5)) // several have the same score
				}
				for i, id := range before {
					add(id, float64(i))
				}
				for i, id := range behind {
					add(id, float64(5000+i))
				}
			}, func() {
				for range moves {
					end := random.IntN(2)
					calm.ZRem(ctx, queuePrefix(queue)+key, [][]string{before, behind}[end][gone%200])
					add(fmt.Sprintf("new%d", gone), []float64{1, 9000}[end])
					gone++
				}
			}
	}
	for _, tt := range []struct {
		name  string
		shelf Shelf
		of    func(queue string) (fill, move func())
	}{
		{"retry", Retrying, func(q string) (func(), func()) { return inZSet(q, "retry") }},
		{"line", ShelfOf("api"), func(q string) (func(), func()) { return inZSet(q, "jt:line:api") }},
		{"archived", Archived, func(q string) (func(), func()) { return inZSet(q, "archived") }},
		{"oldest", Oldest, func(q string) (func(), func()) { return inZSet(q, "archived") }},
		{"pending", Pending, func(q string) (func(), func()) {
			key, n := pendingKey(q), 0
			return func() {
					for _, ids := range [][]string{before, nil, behind} { // before are taken first
						if ids == nil {
							for i := range stay {
								calm.LPush(ctx, key, name(i))
							}
						}
						calm.LPush(ctx, key, append(anys(ids), "x")...)
					}
				}, func() {
					for range moves {
						n++
						calm.LPush(ctx, key, fmt.Sprintf("new%d", n))
						if n < 150 {
							calm.RPop(ctx, key)
						}
					}
				}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fill, move := tt.of(tt.name)
			fill()
			moving := redis.NewClient(&redis.Options{Addr: addr})
			t.Cleanup(func() { moving.Close() })
			moving.AddHook(restless{move})
			lines := New(moving)
			var seen []string
			for last, parts := (Entry{}), 0; parts < 1000; parts++ {
				entries, err := lines.Shelf(ctx, tt.name, tt.shelf, last, atOnce)
				if err != nil {
					t.Fatal(err)
				}
				if len(entries) == 0 || len(seen) > 2000 {
					break
				}
				for _, e := range entries {
					seen = append(seen, e.ID)
				}
				last = entries[len(entries)-1]
			}
			for i := range stay {
				if !slices.Contains(seen, name(i)) {
					t.Errorf("%s is not in the list", name(i))
				}
			}
		})
	}
}
