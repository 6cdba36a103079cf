package simulate

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/written"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

var write = flag.Bool("write", false, "write the tables of docs/scaling.md")

// tabulate prints a table, and writes it into the page if that was asked for.
func tabulate(t *testing.T, table string) {
	t.Helper()
	fmt.Print(table)
	if !*write {
		return
	}
	if err := written.Into("../../docs/scaling.md", t.Name(), table); err != nil {
		t.Error(err)
	}
}

func nightly() bool { return os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// of is a fleet with a limit of that many permits a second.
func of(permits int64, clients, waiters int) Fleet {
	return Fleet{
		Rate:    throttle.Rate{Permits: permits, Interval: time.Second},
		Clients: clients, Waiters: waiters,
		Warm: 3 * time.Second, Length: 13 * time.Second,
	}
}

// run simulates a fleet on a Redis of its own and checks that it kept its limit.
func run(t *testing.T, f Fleet) (g Figures) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer rdb.Close()
	ctx, cancel := context.WithCancel(context.Background())
	r, done := Serve(ctx, rdb)
	defer func() {
		cancel()
		<-done
	}()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if g, err = f.Run(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	})
	if g.Busiest > int(f.Rate.Permits) {
		t.Errorf("%d permits were used within %v, the limit is %v", g.Busiest, f.Rate.Interval, f.Rate)
	}
	return g
}

// TestFleets makes the table of docs/scaling.md at night, and otherwise checks
// fleets that every test run has time for.
func TestFleets(t *testing.T) {
	if nightly() {
		table := Head
		for _, f := range []Fleet{
			of(100, 10, 1), of(100, 10, 20), of(100, 100, 1), of(100, 100, 20), of(100, 1000, 1), of(100, 1000, 20),
			of(100, 2000, 1), of(100, 3000, 1), of(100, 5000, 1), of(100, 10000, 1), of(100, 10000, 20),
			of(10000, 10, 1), of(10000, 10, 20), of(10000, 100, 1), of(10000, 100, 20), of(10000, 1000, 1), of(10000, 1000, 20),
			of(10000, 10000, 1), of(10000, 10000, 20),
		} {
			g := run(t, f)
			table += g.Row()
			if permits := float64(f.Rate.Permits); f.Clients/10*f.Waiters >= 10_000 && float64(g.BySecond[9]) < 0.9*permits {
				t.Errorf("%d of %.0f permits were used in the tenth second", g.BySecond[9], permits)
			}
		}
		tabulate(t, table)
		return
	}
	for _, waiters := range []int{1, 20} {
		g := run(t, of(100, 10, waiters))
		if g.Served != 10 || g.Used() < 0.98 || g.CallsPerPermit() > 2 || g.Steady.Checks == 0 {
			t.Errorf("%d waiters each: %+v: want all served, the limit used, two calls per permit at most, and some of them only checks", waiters, g)
		}
	}
}

// A process that dies wastes its reservations, at most those within the horizon. After that the
// limit is used as before.
func TestPlacesOfTheDeadAreLostOnce(t *testing.T) {
	fleets, one := []Fleet{of(100, 50, 20)}, 2 // that many die
	if nightly() {
		fleets, one = []Fleet{of(100, 1000, 20), of(10000, 100, 20), of(10000, 1000, 20)}, 10
	}
	table := "| limit | Clients x waiters | 3 s | 4 s | 5 s | 6 s | 7 s | 8 s |\n| --- | --- | --- | --- | --- | --- | --- | --- |\n"
	for _, f := range fleets {
		f.Dying = f.Clients / one
		f.Warm, f.Length = 3*time.Second, 9*time.Second // they die at 6 s
		g := run(t, f)
		limit := int(f.Rate.Permits)
		table += g.Seconds(g.BySecond[3:9]...)
		lost := 0
		for _, used := range g.BySecond[3:] {
			lost += limit - used
		}
		if lost == 0 || lost > 2*limit || g.BySecond[8] < limit*98/100 {
			t.Errorf("%d permits were lost: want some, at most two bursts, and all of the last second used", lost)
		}
	}
	tabulate(t, table)
}

// If many wait for a Redis that is busy, or that stood still, answers come too late to be
// useful. If all asked again at once, it would stay so.
func TestFleetsRecover(t *testing.T) {
	slow := of(3000, 1000, 1)
	slow.Slower = 3
	fleets := []Fleet{slow}
	if nightly() {
		fleets = []Fleet{of(10000, 1000, 1), of(10000, 3000, 1), of(10000, 5000, 1), of(10000, 10000, 1), of(10000, 3000, 20)}
	}
	table := "| limit | Clients x waiters | 0 s | 1 s | 2 s | 3 to 7 s, least | most | 8 s | 9 s | 10 s | 11 s | 12 s |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
	for _, f := range fleets {
		f.Stall = 2 * time.Second
		f.Warm, f.Length = 3*time.Second, 13*time.Second // it is from 8 s to 10 s
		g := run(t, f)
		steady := g.BySecond[3:8]
		table += g.Seconds(slices.Concat(g.BySecond[:3], []int{slices.Min(steady), slices.Max(steady)}, g.BySecond[8:13])...)
		before, after := 0, g.BySecond[12]
		for _, used := range g.BySecond[3:8] {
			before += used
		}
		if limit := int(f.Rate.Permits); before < 5*limit*85/100 || after < limit*75/100 {
			t.Errorf("%d permits in 5 s before Redis stood still, and %d in the third second after: want 85 and 75 %% of %d a second",
				before, after, limit)
		}
	}
	tabulate(t, table)
}
