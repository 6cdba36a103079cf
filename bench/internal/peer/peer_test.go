package peer

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/bench/internal/fleet"
	"github.com/jobthrottle/jobthrottle/internal/redisson"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis logs each of the connections that TestWithoutRedis lets fail
	goleak.VerifyTestMain(m)
}

// fleetOf has that many permits of each limit in an hour, so that no permit comes back.
func fleetOf(name string, permits ...int64) fleet.Work {
	w := fleet.Work{Clients: 2, Goroutines: 4, Length: time.Second}
	for i, n := range permits {
		w.Limits = append(w.Limits, fleet.Limit{Name: "{" + name + "}:" + string(rune('a'+i)), Permits: n, Interval: time.Hour})
	}
	return w
}

// TestWork: peers hand out what the limit allows, to all clients, and then make
// callers wait. (What redis_rate gives back within a second of an hour is no permit.)
func TestWork(t *testing.T) {
	addr := redistest.Start(t)
	for _, p := range []Peer{Jobthrottle{Addr: addr}, Jobthrottle{Addr: addr, NoPrefetch: true}, RedisRate{Addr: addr}} {
		t.Run(p.Name(), func(t *testing.T) {
			t.Parallel()
			checkHandsOut(t, p, fleetOf("one", 20), 20)
			checkHandsOut(t, p, fleetOf("several", 40, 20, 30), 20)
			weighed := fleetOf("weighed", 25)
			weighed.Cost = func(client, goroutine int) int64 { return 10 }
			checkHandsOut(t, p, weighed, 20)
		})
	}
}

// work lets a fleet of its own work.
func work(t *testing.T, p Peer, w fleet.Work) ([]fleet.Use, error) {
	f, err := p.Join(t.Context(), w)
	if err != nil {
		return nil, err
	}
	uses, err := f.Work(t.Context())
	return uses, errors.Join(err, f.Close())
}

func checkHandsOut(t *testing.T, p Peer, w fleet.Work, want int64) {
	t.Helper()
	for i := range w.Limits {
		w.Limits[i].Name += p.Name()
	}
	uses, err := work(t, p, w)
	if err != nil {
		t.Fatal(err)
	}
	if got := fleet.Permits(uses); got != want {
		t.Errorf("%s: %d permits, want %d", w.Limits[0].Name, got, want)
	}
}

// The connections of a client are there before it works.
func TestConnect(t *testing.T) {
	w := fleetOf("none")
	w.Goroutines = 20
	rdb, err := connect(t.Context(), redistest.Start(t), w, w.Goroutines)
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	if n := rdb.PoolStats().IdleConns; n != 20 {
		t.Errorf("%d connections, want 20", n)
	}
}

func TestScript(t *testing.T) {
	p := Script{Addr: redistest.Start(t)}
	w := fleetOf("none")
	w.Length = 50 * time.Millisecond
	uses, err := work(t, p, w)
	if err != nil || len(uses) == 0 {
		t.Errorf("%d calls: %v", len(uses), err)
	}
}

// TestWithoutRedis: a peer that cannot work says so, rather than reporting little work.
func TestWithoutRedis(t *testing.T) {
	s := redistest.New(t)
	s.Stop()
	w := fleetOf("none", 5)
	w.Length = time.Minute // longer than go-redis tries
	for _, p := range []Peer{RedisRate{Addr: s.Addr}, Script{Addr: s.Addr}} {
		if uses, err := work(t, p, w); err == nil {
			t.Errorf("%s: %d uses and no error", p.Name(), len(uses))
		}
	}
}

func TestRedisson(t *testing.T) {
	p, err := StartRedisson(t.Context(), redistest.Start(t))
	if errors.Is(err, redisson.ErrNoJava) && os.Getenv("JOBTHROTTLE_REQUIRE_JAVA") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	w := fleetOf("weighed", 25)
	w.Cost = func(client, goroutine int) int64 { return int64(5 * (1 + client)) }
	uses, err := work(t, p, w)
	if err != nil {
		t.Fatal(err)
	}
	if got := fleet.Permits(uses); got != 25 {
		t.Errorf("%d permits, want 25", got)
	}
	for i, u := range uses {
		if want := int32(5 * (1 + u.Client)); u.Permits != want || int(u.Goroutine) >= w.Goroutines {
			t.Errorf("use %d: %+v, want %d permits of its client", i, u, want)
		}
		if u.At < 0 || u.At > w.Length || i > 0 && u.At < uses[i-1].At {
			t.Errorf("use %d at %v, want it within %v and in the order of time", i, u.At, w.Length)
		}
	}
	if _, err := work(t, p, fleetOf("several", 5, 5)); err == nil {
		t.Error("no error for two limits")
	}
}
