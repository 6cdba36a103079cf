package throttle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/redis/go-redis/v9"
)

// accounts is a fleet whose jobs need a permit of the fleet and one of their account. A few
// accounts have more to do than they may, so that their jobs wait long; other accounts come now
// and then and find their own limit free.
type accounts struct {
	fleet, account throttle.Rate
	clients        int
	hot            int // accounts that always have work waiting
	waiting        int // their jobs in each client
	others         int // arrivals per second of other jobs, each with an account of its own
	length         time.Duration
}

// accountsOutcome is what was used, and how long the others waited.
type accountsOutcome struct {
	fleet    outcome
	accounts []outcome
	waits    []time.Duration // ascending
}

func (a accounts) run(tb testing.TB, addr string) accountsOutcome {
	tb.Helper()
	name := strings.ReplaceAll(tb.Name(), "/", ":")
	groups := make([]func(account int) *throttle.Group, a.clients)
	for c := range groups {
		rdb := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 2 * (a.hot + a.others)})
		defer rdb.Close()
		client, err := throttle.New(rdb, throttle.Options{})
		if err != nil {
			tb.Fatal(err)
		}
		defer func() {
			if err := client.Close(); err != nil {
				tb.Error(err)
			}
		}()
		groups[c] = func(account int) *throttle.Group { return a.group(tb, client, name, account) }
	}

	ctx, cancel := context.WithTimeout(context.Background(), a.length)
	defer cancel()
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		begin  = time.Now()
		out    accountsOutcome
		record = func(client, account int) {
			at := time.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			out.fleet.uses = append(out.fleet.uses, use{at: at, n: 1, client: client, goroutine: account})
		}
	)
	for c, group := range groups {
		for account := range a.hot {
			g := group(account)
			for range a.waiting {
				wg.Go(func() {
					for g.Acquire(ctx, 1) == nil {
						record(c, account)
					}
				})
			}
		}
	}
	next := time.NewTimer(0)
	defer next.Stop()
	for account := a.hot; ctx.Err() == nil; account++ {
		select {
		case <-ctx.Done():
			continue
		case <-next.C:
		}
		next.Reset(time.Duration(rand.ExpFloat64() * float64(time.Second) / float64(a.others)))
		c := rand.IntN(a.clients)
		g := groups[c](account)
		wg.Go(func() {
			asked := time.Now()
			if g.Acquire(ctx, 1) != nil {
				return // the end
			}
			waited := time.Since(asked)
			record(c, account)
			mu.Lock()
			defer mu.Unlock()
			out.waits = append(out.waits, waited)
		})
	}
	wg.Wait()

	slices.SortFunc(out.fleet.uses, func(a, b use) int { return int(a.at - b.at) })
	out.fleet.length = a.length
	for _, u := range out.fleet.uses {
		for u.goroutine >= len(out.accounts) {
			out.accounts = append(out.accounts, outcome{length: a.length})
		}
		out.accounts[u.goroutine].uses = append(out.accounts[u.goroutine].uses, u)
	}
	slices.Sort(out.waits)
	return out
}

// group is the limits of one account's jobs.
func (a accounts) group(tb testing.TB, c *throttle.Client, name string, account int) *throttle.Group {
	all, err := c.LimiterWithRate(name, a.fleet)
	if err != nil {
		tb.Error(err)
	}
	own, err := c.LimiterWithRate(fmt.Sprintf("%s:%d", name, account), a.account)
	if err != nil {
		tb.Error(err)
	}
	g, err := c.Group(all, own)
	if err != nil {
		tb.Error(err)
	}
	return g
}

// hotAccounts are five accounts that could use half of what the fleet may.
func hotAccounts() accounts {
	a := accounts{
		fleet:   throttle.Rate{Permits: 100, Interval: time.Second},
		account: throttle.Rate{Permits: 10, Interval: time.Second, KeepAlive: 5 * time.Second},
		clients: 4, hot: 5, waiting: 10, others: 30,
		length: 5 * time.Second,
	}
	if nightly() {
		a.length = 30 * time.Second
	}
	return a
}

// check fails the test if any limit was broken.
func (o accountsOutcome) check(tb testing.TB, a accounts) {
	tb.Helper()
	if got := o.fleet.busiest(a.fleet.Interval); got > a.fleet.Permits {
		tb.Errorf("the fleet used %d permits within %v, its limit is %d", got, a.fleet.Interval, a.fleet.Permits)
	}
	for i, account := range o.accounts {
		if got := account.busiest(a.account.Interval); got > a.account.Permits {
			tb.Errorf("account %d used %d permits within %v, its limit is %d", i, got, a.account.Interval, a.account.Permits)
		}
	}
	if len(o.waits) == 0 || len(o.accounts) < a.hot {
		tb.Error("not all accounts had a turn")
	}
}

// TestGroupKeepsEveryLimit: jobs that wait for their account's limit, and those that do not have
// to, break neither that limit nor the fleet's.
func TestGroupKeepsEveryLimit(t *testing.T) {
	a := hotAccounts()
	a.fleet.Guard, a.account.Guard = 50*time.Millisecond, 50*time.Millisecond // as for all fleets of processes: see contended
	o := a.run(t, redistest.Start(t))
	o.check(t, a)
}

// BenchmarkHotAccounts prints what a few busy accounts cost the others:
//
//	JOBTHROTTLE_NIGHTLY=1 go test -run - -bench HotAccounts -benchtime 1x ./throttle
func BenchmarkHotAccounts(b *testing.B) {
	a := hotAccounts()
	addr := redistest.Start(b)
	for b.Loop() {
		o := a.run(b, addr)
		o.check(b, a)
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(float64(o.fleet.permits())/a.length.Seconds(), "permits/s")
		b.ReportMetric(float64(len(o.waits))/a.length.Seconds(), "others/s")
		reportPercentiles(b, "others", o.waits)
	}
}

// reportPercentiles prints the median, the 99th percentile and the longest of waits in ascending order.
func reportPercentiles(b *testing.B, who string, waits []time.Duration) {
	b.Helper()
	if len(waits) == 0 {
		b.Fatal("nobody waited")
	}
	for _, p := range []int{50, 99, 100} {
		wait := waits[min(len(waits)*p/100, len(waits)-1)]
		b.ReportMetric(float64(wait.Microseconds())/1000, fmt.Sprintf("%s-p%d-ms", who, p))
	}
}
