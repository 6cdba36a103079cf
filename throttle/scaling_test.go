package throttle

import (
	"context"
	"flag"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/written"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

var writeCosts = flag.Bool("costs", false, "write what script calls cost into docs/scaling.md")

// BenchmarkScriptCost measures what the script calls of docs/scaling.md cost
// Redis: its processor time a call, with the network's part and without, and
// the permits that a call brings. It takes the lowest of several runs: others use the processor, too.
// What a call that grants permits costs is fitted by a + b x grants + c x further limiters.
//
//	go test -run - -bench ScriptCost -benchtime 3x ./throttle -costs    writes the tables there
func BenchmarkScriptCost(b *testing.B) {
	never := Rate{Permits: MaxPermits, Interval: time.Second, Guard: -1} // without a guard there is no stock: each has a call
	thousand := Rate{Permits: 1000, Interval: time.Second}
	redisVersion := ""
	costs := map[string]cost{}
	table := "| call | processor time | of it in the script | permits it brings |\n| --- | --- | --- | --- |\n"
	for _, c := range []struct {
		name, says string
		load       load
	}{
		{"empty-script", "an empty script, for comparison", load{clients: 1, waiters: 1, call: func(ctx context.Context, c *Client) error {
			return redis.NewScript("return 1").Run(ctx, c.core.Redis, nil).Err()
		}}},
		{"read-epoch", "a check of the configuration (`epoch.lua`)", load{rates: []Rate{never}, clients: 1, waiters: 1, call: func(ctx context.Context, c *Client) error {
			_, err := c.core.Call(ctx, script.Epoch, []string{"1"})
			return err
		}}},
		{"never-binding", "a limit that does not bind, one caller", load{rates: []Rate{never}, clients: 1, waiters: 1}},
		{"never-binding-group-of-3", "a group of three that does not bind, one caller", load{rates: []Rate{never, never, never}, clients: 1, waiters: 1}},
		{"contended-8x64", "a binding limit, 8 processes with 64 waiters each, 1000/s", load{rates: []Rate{thousand}, clients: 8, waiters: 64}},
		{"contended-8x64-group-of-3", "a group of three, the same", load{rates: []Rate{thousand, thousand, thousand}, clients: 8, waiters: 64}},
		{"contended-64x1", "a binding limit, 64 processes with one waiter each, 1000/s", load{rates: []Rate{thousand}, clients: 64, waiters: 1}},
	} {
		var least cost
		b.Run(c.name, func(b *testing.B) {
			least = cost{cpu: math.Inf(1)}
			for b.Loop() {
				if m := c.load.run(b); m.cpu < least.cpu {
					least = m
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(least.perSecond, "calls/s")
			b.ReportMetric(least.cpu, "cpu-us/call")
			b.ReportMetric(least.inScript, "script-us/call")
			b.ReportMetric(least.permits, "permits/call")
		})
		redisVersion, costs[c.name] = least.redisVersion, least
		permits := ""
		if least.permits > 0 {
			permits = fmt.Sprintf("%.3g", least.permits)
		}
		table += fmt.Sprintf("| %s | %.0f us | %.0f us | %s |\n", c.says, least.cpu, least.inScript, permits)
	}
	few, many, group := costs["contended-64x1"], costs["contended-8x64"], costs["contended-8x64-group-of-3"]
	eachGrant := (many.cpu - few.cpu) / (many.permits - few.permits)
	call := few.cpu - eachGrant*few.permits
	eachLimiter := (group.cpu - call - eachGrant*group.permits) / 2
	table += fmt.Sprintf("\n| fitted to the last three rows | processor time |\n| --- | --- |\n| a call that grants permits | %.0f us |\n| each grant | %.1f us |\n| each further limiter of a group | %.0f us |\n",
		call, eachGrant, eachLimiter)
	if *writeCosts {
		when := fmt.Sprintf("Measured %s with Redis %s on one of %d cores.", time.Now().Format(time.DateOnly), redisVersion, runtime.NumCPU())
		check(b, written.Into("../docs/scaling.md", "BenchmarkScriptCost", when+"\n\n"+table))
	}
}

// cost is what a script call costs: us of Redis's processor, and of that in the script; and the permits that it
// brings.
type cost struct {
	perSecond, cpu, inScript, permits float64
	redisVersion                      string
}

// load is Clients whose goroutines acquire in a loop; or, if call is set, do that.
type load struct {
	rates            []Rate // a limiter each, acquired together
	clients, waiters int
	call             func(ctx context.Context, c *Client) error
}

func (l load) run(b *testing.B) cost {
	b.Helper()
	addr := redistest.Start(b)
	admin := redis.NewClient(&redis.Options{Addr: addr})
	defer admin.Close()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()

	var wg sync.WaitGroup
	clients := make([]*Client, l.clients)
	for i := range clients {
		rdb := redis.NewClient(&redis.Options{Addr: addr})
		defer rdb.Close()
		c, err := New(rdb, Options{})
		if err != nil {
			b.Fatal(err)
		}
		clients[i] = c
		acquire := l.acquire(b, c)
		for range l.waiters {
			wg.Go(func() {
				for {
					if err := acquire(ctx); err != nil {
						if ctx.Err() == nil {
							b.Error(err)
						}
						return
					}
				}
			})
		}
	}
	<-time.After(time.Second) // the first calls compile scripts and create limiters
	before := workOf(b, admin)
	granted := grants(clients)
	<-time.After(3 * time.Second)
	after := workOf(b, admin)
	granted = grants(clients) - granted
	cancel()
	wg.Wait()
	for _, c := range clients {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	}

	calls := after.calls - before.calls
	return cost{calls / 3, (after.cpu - before.cpu) * 1e6 / calls, (after.inScripts - before.inScripts) / calls, float64(granted) / calls, after.redisVersion}
}

// acquire is what the goroutines of a Client do.
func (l load) acquire(b *testing.B, c *Client) func(context.Context) error {
	b.Helper()
	limiters := make([]*Limiter, len(l.rates))
	for i, r := range l.rates {
		var err error
		if limiters[i], err = c.LimiterWithRate(strconv.Itoa(i+1), r); err != nil {
			b.Fatal(err)
		}
	}
	if l.call != nil {
		return func(ctx context.Context) error { return l.call(ctx, c) }
	}
	g, err := c.Group(limiters...)
	if err != nil {
		b.Fatal(err)
	}
	return func(ctx context.Context) error { return g.Acquire(ctx, 1) }
}

func grants(clients []*Client) (sum int64) {
	for _, c := range clients {
		sum += c.Stats().Grants
	}
	return sum
}

// work is what a server has done since it started.
type work struct {
	cpu       float64 // s, of the process
	inScripts float64 // us
	calls     float64 // of scripts

	redisVersion string
}

func workOf(b *testing.B, rdb *redis.Client) (w work) {
	b.Helper()
	text, err := rdb.Info(context.Background(), "everything").Result()
	if err != nil {
		b.Fatal(err)
	}
	value := func(text, after string) string {
		_, rest, _ := strings.Cut(text, after)
		return rest[:strings.IndexAny(rest+",", ",\r\n")]
	}
	number := func(text, after string) float64 {
		rest := value(text, after)
		x, err := strconv.ParseFloat(rest, 64)
		if err != nil {
			b.Fatalf("INFO: no number after %q: %v", after, err)
		}
		return x
	}
	_, evalsha, _ := strings.Cut(text, "cmdstat_evalsha:")
	return work{
		cpu:       number(text, "used_cpu_user:") + number(text, "used_cpu_sys:"),
		inScripts: number(evalsha, "usec="),
		calls:     number(evalsha, "calls="),

		redisVersion: value(text, "redis_version:"),
	}
}
