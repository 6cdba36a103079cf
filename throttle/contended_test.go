package throttle_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/redis/go-redis/v9"
)

// fleet is Clients with goroutines that acquire in a loop, and what they saw.
type fleet struct {
	rate       throttle.Rate
	clients    int
	goroutines int
	cost       func(client, goroutine int) int64 // nil: one permit each
	length     time.Duration
}

// use is permits that a caller was handed, and when.
type use struct {
	at                time.Duration
	n                 int64
	client, goroutine int
}

// outcome is a fleet's run: uses in the order of their times.
type outcome struct {
	uses     []use
	length   time.Duration
	calls    int64
	stale    int64
	late     int64
	redisCPU time.Duration
}

// run lets the fleet acquire for its length, each Client with a connection
// pool of its own, as separate processes have.
func (f fleet) run(tb testing.TB, addr string) outcome {
	tb.Helper()
	admin := redis.NewClient(&redis.Options{Addr: addr})
	defer admin.Close()
	name := strings.ReplaceAll(tb.Name(), "/", ":")

	ctx, cancel := context.WithTimeout(context.Background(), f.length)
	defer cancel()
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		out   = outcome{length: f.length}
		cs    []*throttle.Client
		cpu   = redisCPU(tb, admin)
		begin = time.Now()
	)
	for c := range f.clients {
		rdb := redis.NewClient(&redis.Options{Addr: addr, ContextTimeoutEnabled: true})
		defer rdb.Close()
		client, err := throttle.New(rdb, throttle.Options{})
		if err != nil {
			tb.Fatal(err)
		}
		cs = append(cs, client)
		l, err := client.LimiterWithRate(name, f.rate)
		if err != nil {
			tb.Fatal(err)
		}
		for g := range f.goroutines {
			n := int64(1)
			if f.cost != nil {
				n = f.cost(c, g)
			}
			wg.Go(func() {
				var mine []use
				for l.Acquire(ctx, n) == nil {
					mine = append(mine, use{time.Since(begin), n, c, g})
				}
				mu.Lock()
				defer mu.Unlock()
				out.uses = append(out.uses, mine...)
			})
		}
	}
	wg.Wait()
	out.redisCPU = redisCPU(tb, admin) - cpu
	for _, c := range cs {
		s := c.Stats()
		out.calls += s.Calls
		out.stale += s.Stale
		out.late += s.Late
		if err := c.Close(); err != nil {
			tb.Error(err)
		}
	}
	slices.SortFunc(out.uses, func(a, b use) int { return int(a.at - b.at) })
	return out
}

func (o outcome) permits() (sum int64) {
	for _, u := range o.uses {
		sum += u.n
	}
	return sum
}

// busiest is the most permits used in any interval.
func (o outcome) busiest(interval time.Duration) (most int64) {
	var sum int64
	first := 0
	for _, u := range o.uses {
		sum += u.n
		for o.uses[first].at <= u.at-interval {
			sum -= o.uses[first].n
			first++
		}
		most = max(most, sum)
	}
	return most
}

// used is the part of the limit that was used, without the guard's own share.
func (o outcome) used(r throttle.Rate, guard time.Duration) float64 {
	windows := float64(o.length)/float64(r.Interval+guard) + 1
	if whole := float64(int(windows)); windows > whole {
		windows = whole // the last burst is still to come
	}
	return float64(o.permits()) / (float64(r.Permits) * windows)
}

// jain is Jain's fairness index over the permits of those that key tells apart.
func (o outcome) jain(keys int, key func(use) int) float64 {
	got := make([]float64, keys)
	for _, u := range o.uses {
		got[key(u)] += float64(u.n)
	}
	var sum, squares float64
	for _, x := range got {
		sum += x
		squares += x * x
	}
	return sum * sum / (float64(keys) * squares)
}

func (o outcome) report(b *testing.B, f fleet) {
	permits := float64(o.permits())
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(permits/o.length.Seconds(), "permits/s")
	b.ReportMetric(float64(o.calls)/permits, "calls/permit")
	b.ReportMetric(float64(o.redisCPU.Microseconds())/permits, "redis-us/permit")
	b.ReportMetric(float64(o.busiest(f.rate.Interval)), "busiest-window")
	b.ReportMetric(100*o.used(f.rate, f.rate.DefaultGuard()), "%used")
	b.ReportMetric(o.jain(f.clients, func(u use) int { return u.client }), "jain-clients")
	b.ReportMetric(o.jain(f.clients*f.goroutines, func(u use) int { return u.client*f.goroutines + u.goroutine }), "jain-goroutines")
	b.ReportMetric(float64(o.stale)/permits, "stale/permit")
	b.ReportMetric(float64(o.late)/permits, "late/permit")
}

// redisCPU is the processor time the server's main thread has used.
func redisCPU(tb testing.TB, rdb *redis.Client) time.Duration {
	tb.Helper()
	info, err := rdb.Info(context.Background(), "cpu").Result()
	if err != nil {
		tb.Fatal(err)
	}
	var sum float64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys" || name == "used_cpu_user" {
			x, err := strconv.ParseFloat(value, 64)
			if err != nil {
				tb.Fatal(err)
			}
			sum += x
		}
	}
	return time.Duration(sum * float64(time.Second))
}

// nightly reports whether tests and benchmarks are to run at full size.
func nightly() bool { return os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" }

// BenchmarkContended prints what a waiting fleet costs and gets:
//
//	go test -run - -bench Contended -benchtime 1x ./throttle
func BenchmarkContended(b *testing.B) {
	length := 6 * time.Second
	if nightly() {
		length = 20 * time.Second
	}
	for _, f := range []fleet{
		{rate: throttle.Rate{Permits: 1000, Interval: time.Second}, clients: 8, goroutines: 64},
		{rate: throttle.Rate{Permits: 50, Interval: time.Second}, clients: 8, goroutines: 64},
		{rate: throttle.Rate{Permits: 1000, Interval: time.Second}, clients: 64, goroutines: 1},
	} {
		b.Run(fmt.Sprintf("%v/%dx%d", strings.ReplaceAll(f.rate.String(), "/", "per"), f.clients, f.goroutines), func(b *testing.B) {
			f.length = length
			addr := redistest.Start(b)
			for b.Loop() {
				f.run(b, addr).report(b, f)
			}
		})
	}
}

// BenchmarkShortIntervals prints what callers get of limits whose guards are as short as timers are late.
func BenchmarkShortIntervals(b *testing.B) {
	for _, r := range []throttle.Rate{
		{Permits: 10, Interval: time.Millisecond}, {Permits: 1, Interval: 10 * time.Millisecond}, {Permits: 1, Interval: 100 * time.Millisecond},
		{Permits: 5, Interval: 250 * time.Millisecond},
	} {
		b.Run(strings.ReplaceAll(r.String(), "/", "per"), func(b *testing.B) {
			f := fleet{rate: r, clients: 4, goroutines: 8, length: 10 * time.Second}
			addr := redistest.Start(b)
			for b.Loop() {
				f.run(b, addr).report(b, f)
			}
		})
	}
}

// BenchmarkBigAmongSmall prints how often one request for many permits is
// served beside 511 that ask for one.
func BenchmarkBigAmongSmall(b *testing.B) {
	for _, c := range []struct {
		big    int64
		rate   int64
		length time.Duration
	}{{500, 1000, 20 * time.Second}, {25, 50, 60 * time.Second}} {
		b.Run(fmt.Sprintf("%dof%d", c.big, c.rate), func(b *testing.B) {
			f := fleet{rate: throttle.Rate{Permits: c.rate, Interval: time.Second}, clients: 8, goroutines: 64, length: c.length}
			f.cost = func(client, goroutine int) int64 {
				if client == 0 && goroutine == 0 {
					return c.big
				}
				return 1
			}
			addr := redistest.Start(b)
			for b.Loop() {
				o := f.run(b, addr)
				var bigs, smalls int
				for _, u := range o.uses {
					if u.n == c.big {
						bigs++
					} else {
						smalls++
					}
				}
				o.report(b, f)
				b.ReportMetric(float64(bigs), "big-turns")
				b.ReportMetric(float64(smalls)/511, "small-turns")
			}
		})
	}
}
