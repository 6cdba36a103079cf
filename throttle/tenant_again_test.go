package throttle

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// TestTenantsThatComeBack: many tenants, each with one caller that comes back at once, use the whole limit.
func TestTenantsThatComeBack(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		const length = 25 * time.Second
		many, permits := quarter(5000), quarter(500)
		ls := b.twoProcesses(rate(fmt.Sprint(permits, "/1s")))
		ctx, cancel := context.WithTimeout(b.Context(), length)
		defer cancel()
		var got atomic.Int64
		var wg sync.WaitGroup
		for i := range many {
			wg.Go(func() {
				for ls[i%2].For(fmt.Sprint("tenant ", i)).Acquire(ctx, 1) == nil {
					got.Add(1)
				}
			})
		}
		wg.Wait()
		if n, most := got.Load(), int64(float64(permits)*length.Seconds()); n < most*98/100 {
			b.Errorf("%d permits in %v, want nearly %d", n, length, most)
		}
	})
}

// TestRaisedWeightCountsAtOnce: a tenant with a small weight that has just been served gets its share at once when
// its weight is raised.
func TestRaisedWeightCountsAtOnce(t *testing.T) {
	underFakeTime(t, func(b *bench) {
		l := b.limited(rate("10/1s"))
		check(b, l.SetWeight(b.Context(), "batch", 0.01))
		ctx, cancel := context.WithTimeout(b.Context(), 20*time.Second)
		defer cancel()
		var raised atomic.Bool
		var got atomic.Int64
		var wg sync.WaitGroup
		for i := range 10 {
			name := fmt.Sprint("other ", i)
			if i == 9 {
				name = "batch"
			}
			for range 20 {
				wg.Go(func() {
					for l.For(name).Acquire(ctx, 1) == nil {
						if name == "batch" && raised.Load() {
							got.Add(1)
						}
					}
				})
			}
		}
		time.Sleep(10 * time.Second)
		raised.Store(true)
		check(b, l.SetWeight(b.Context(), "batch", 9))
		wg.Wait()
		if n := got.Load(); n < 40 { // half of ten seconds' permits
			b.Errorf("%d permits in 10s with half of all weight, want about 50", n)
		}
	})
}

// TestTenantCallIsRepeated: a call that charges tenants and is made twice, because its answer was lost, charges
// once, also if nobody waits any more, and if Redis was away for a while in between.
func TestTenantCallIsRepeated(t *testing.T) {
	forEachRedis(t, func(b *bench) {
		l := b.limited(rate("100/1s"))
		call := script.TenantCall{Client: "client", No: 7, Soon: time.Millisecond, Holds: time.Second, Rest: -1, Paid: []script.Charged{{Tenant: "a", Permits: 10}}}
		for i := range 2 {
			if i == 1 && b.fake != nil {
				time.Sleep(20 * time.Second)
			}
			_, _, err := script.Call(b.Context(), b.rdb, script.Tenants, script.TenantKeys(l.Name(), "client", "client"), call.Args()...)
			check(b, err)
		}
		finish, err := b.rdb.ZScore(b.Context(), "{"+l.Name()+"}:finish", "a").Result()
		check(b, err)
		if finish != 10 {
			b.Errorf("the tag is %s after a charge of 10, made twice", strconv.FormatFloat(finish, 'g', -1, 64))
		}
	})
}
