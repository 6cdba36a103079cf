package simulate

import (
	"context"
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
)

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

// TestFleets prints the table of docs/scaling.md at night, and otherwise checks
// fleets that every test run has time for.
func TestFleets(t *testing.T) {
	if os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" {
		fmt.Println(Head)
		for _, permits := range []int64{100, 10000} {
			for _, clients := range []int{10, 100, 1000, 10000} {
				for _, waiters := range []int{1, 20} {
					g := run(t, of(permits, clients, waiters))
					fmt.Println(g.Row())
					if clients/10*waiters >= 10_000 && float64(g.BySecond[9]) < 0.9*float64(permits) {
						t.Errorf("%d of %d permits were used in the tenth second", g.BySecond[9], permits)
					}
				}
			}
		}
		for _, clients := range []int{2000, 3000, 5000} {
			fmt.Println(run(t, of(100, clients, 1)).Row())
		}
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
	if os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" {
		fleets, one = []Fleet{of(100, 1000, 20), of(10000, 100, 20), of(10000, 1000, 20)}, 10
	}
	for _, f := range fleets {
		f.Dying = f.Clients / one
		f.Warm, f.Length = 3*time.Second, 9*time.Second // they die at 6 s
		g := run(t, f)
		limit := int(f.Rate.Permits)
		t.Logf("%v, %d of %d die: %d permits in each second", f.Rate, f.Dying, f.Clients, g.BySecond)
		lost := 0
		for _, used := range g.BySecond[3:] {
			lost += limit - used
		}
		if lost == 0 || lost > 2*limit || g.BySecond[8] < limit*98/100 {
			t.Errorf("%d permits were lost: want some, at most two bursts, and all of the last second used", lost)
		}
	}
}

// If many wait for a Redis that is busy, or that stood still, answers come too late to be
// useful. If all asked again at once, it would stay so.
func TestFleetsRecover(t *testing.T) {
	slow := of(3000, 1000, 1)
	slow.Slower = 3
	fleets := []Fleet{slow}
	if os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" {
		fleets = []Fleet{of(10000, 1000, 1), of(10000, 3000, 1), of(10000, 5000, 1), of(10000, 10000, 1), of(10000, 3000, 20)}
	}
	for _, f := range fleets {
		f.Stall = 2 * time.Second
		f.Warm, f.Length = 3*time.Second, 13*time.Second // it is from 8 s to 10 s
		g := run(t, f)
		t.Logf("%v, %d x %d: %d permits in each second", f.Rate, f.Clients, f.Waiters, g.BySecond)
		before, after := 0, g.BySecond[12]
		for _, used := range g.BySecond[3:8] {
			before += used
		}
		if limit := int(f.Rate.Permits); before < 5*limit*85/100 || after < limit*75/100 {
			t.Errorf("%d permits in 5 s before Redis stood still, and %d in the third second after: want 85 and 75 %% of %d a second",
				before, after, limit)
		}
	}
}
