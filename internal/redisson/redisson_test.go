package redisson

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is a Peer of a Redis of its own. Where there is no Java the test is skipped,
// or failed, where JOBTHROTTLE_REQUIRE_JAVA=1 asks for it.
func start(t *testing.T, ctx context.Context) *Peer {
	t.Helper()
	p, err := Start(ctx, redistest.Start(t))
	if errors.Is(err, ErrNoJava) && os.Getenv("JOBTHROTTLE_REQUIRE_JAVA") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestStartWithoutJava(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p, err := Start(t.Context(), "127.0.0.1:6379")
	if !errors.Is(err, ErrNoJava) || !strings.Contains(err.Error(), "java") {
		t.Errorf("got %v, %v; want ErrNoJava", p, err)
	}
}

func TestStartWithoutRedis(t *testing.T) {
	server := redistest.New(t)
	server.Stop()
	p, err := Start(t.Context(), server.Addr)
	if errors.Is(err, ErrNoJava) && os.Getenv("JOBTHROTTLE_REQUIRE_JAVA") != "1" {
		t.Skip(err)
	}
	if err == nil {
		t.Fatal("a client of no Redis:", p.Close())
	}
	if !strings.Contains(err.Error(), server.Addr) || !strings.Contains(err.Error(), "Unable to connect") {
		t.Errorf("%v: want it to name the address and quote Redisson", err)
	}
}

func TestLoadUsesItsClients(t *testing.T) {
	p := start(t, t.Context())
	if p.ID() == "" || !strings.HasPrefix(p.Version(), "4.") {
		t.Errorf("id %q, version %q", p.ID(), p.Version())
	}
	l := p.Limiter("api")
	if err := l.SetRate(Rate{PerClient: true, Permits: 10, Interval: time.Hour}); err != nil {
		t.Fatal(err)
	}
	// Three clients with ten permits each: one thread can take 2 x 5, one 3 x 3, one 10.
	grants, err := p.Load(Load{Limiter: "api", Costs: []int64{5, 3, 10}, Clients: 3, For: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	got := make([]int, 3)
	var last int64
	for _, g := range grants {
		got[g.Thread]++
		if g.At < g.Asked || g.At < last {
			t.Errorf("grant %+v after one at %d", g, last)
		}
		last = g.At
	}
	if got[0] != 2 || got[1] != 3 || got[2] != 1 {
		t.Errorf("grants of each thread: %v, want [2 3 1]", got)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestExceptionIsAnError(t *testing.T) {
	p := start(t, t.Context())
	_, err := p.Limiter("api").TryAcquire(1, 0)
	if err == nil || !strings.Contains(err.Error(), `limiter "api": tryAcquire`) || !strings.Contains(err.Error(), "not initialized") {
		t.Errorf("%v: want it to name the limiter and the method and quote the exception", err)
	}
	if err := p.Limiter("api").SetRate(Rate{Permits: 1, Interval: time.Second}); err != nil {
		t.Errorf("after an exception: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestContextEndsTheJVM(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := start(t, ctx)
	l := p.Limiter("api")
	if err := l.SetRate(Rate{Permits: 1, Interval: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := l.Acquire(1); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error, 1)
	go func() { waits <- l.Acquire(1) }()
	cancel()
	if err := <-waits; err == nil {
		t.Error("a second of one permit")
	}
	if err := p.Close(); err == nil {
		t.Error("a JVM that was killed ended well")
	}
}
