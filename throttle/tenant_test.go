package throttle

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// tenantsUntil has tenants ask for permits of the costs, in so many goroutines each,
// until ctx ends, and returns what each got.
func tenantsUntil(ctx context.Context, names []string, callers int, cost func(tenant, n int) int64, limiter func(tenant, caller int) *Limiter) []int64 {
	got := make([]int64, len(names))
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, name := range names {
		for c := range callers {
			l := limiter(i, c).For(name)
			wg.Go(func() {
				for n := 0; ; n++ {
					k := cost(i, n)
					if l.Acquire(ctx, k) != nil {
						return
					}
					mu.Lock()
					got[i] += k
					mu.Unlock()
				}
			})
		}
	}
	wg.Wait()
	return got
}

// TestFewBehindMany: who comes with a few requests after another has come with many
// does not wait for these.
func TestFewBehindMany(t *testing.T) {
	addr := redistest.Start(t)
	var ls [2]*Limiter
	for i := range ls {
		b := &bench{T: t, rdb: dial(t, addr), begin: time.Now()}
		ls[i] = b.limiter(b.client())
	}
	check(t, ls[0].SetRate(t.Context(), Rate{Permits: 100, Interval: time.Second}))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	big := ls[0].For("big")
	for range 1500 {
		wg.Go(func() { _ = big.Acquire(ctx, 1) })
	}
	time.Sleep(200 * time.Millisecond)
	begin := time.Now()
	var few sync.WaitGroup
	for range 15 {
		few.Go(func() {
			if err := ls[1].For("small").Acquire(ctx, 1); err != nil {
				t.Error(err)
			}
		})
	}
	few.Wait()
	took := time.Since(begin)
	fmt.Println("the 15 took", took, "calls", ls[0].c.Stats().Calls, ls[1].c.Stats().Calls)
	if took > 1500*time.Millisecond {
		t.Errorf("the few took %v", took)
	}
}

var _ = redis.Nil
