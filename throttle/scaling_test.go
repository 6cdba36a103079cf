package throttle

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// BenchmarkScriptCost prints what the script calls of docs/scaling.md cost
// Redis: its processor time a call, with the network's part and without, and
// the permits that a call brings.
//
//	go test -run - -bench ScriptCost -benchtime 1x ./throttle
func BenchmarkScriptCost(b *testing.B) {
	never := Rate{Permits: MaxPermits, Interval: time.Second, Guard: -1} // without a guard there is no stock: each has a call
	thousand := Rate{Permits: 1000, Interval: time.Second}
	for _, c := range []struct {
		name string
		load load
	}{
		{"empty-script", load{clients: 1, waiters: 1, call: func(ctx context.Context, c *Client) error {
			return redis.NewScript("return 1").Run(ctx, c.core.Redis, nil).Err()
		}}},
		{"read-epoch", load{rates: []Rate{never}, clients: 1, waiters: 1, call: func(ctx context.Context, c *Client) error {
			_, err := c.core.Call(ctx, script.Epoch, []string{"1"})
			return err
		}}},
		{"never-binding", load{rates: []Rate{never}, clients: 1, waiters: 1}},
		{"never-binding-group-of-3", load{rates: []Rate{never, never, never}, clients: 1, waiters: 1}},
		{"contended-8x64", load{rates: []Rate{thousand}, clients: 8, waiters: 64}},
		{"contended-8x64-group-of-3", load{rates: []Rate{thousand, thousand, thousand}, clients: 8, waiters: 64}},
		{"contended-64x1", load{rates: []Rate{thousand}, clients: 64, waiters: 1}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				c.load.run(b)
			}
		})
	}
}

// load is Clients whose goroutines acquire in a loop; or, if call is set, do that.
type load struct {
	rates            []Rate // a limiter each, acquired together
	clients, waiters int
	call             func(ctx context.Context, c *Client) error
}

func (l load) run(b *testing.B) {
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
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(calls/3, "calls/s")
	b.ReportMetric((after.cpu-before.cpu)*1e6/calls, "cpu-us/call")
	b.ReportMetric((after.inScripts-before.inScripts)/calls, "script-us/call")
	b.ReportMetric(float64(granted)/calls, "permits/call")
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
}

func workOf(b *testing.B, rdb *redis.Client) (w work) {
	b.Helper()
	text, err := rdb.Info(context.Background(), "everything").Result()
	if err != nil {
		b.Fatal(err)
	}
	number := func(text, after string) float64 {
		_, rest, _ := strings.Cut(text, after)
		rest = rest[:strings.IndexAny(rest+",", ",\r\n")]
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
	}
}
