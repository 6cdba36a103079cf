package throttle_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/wire"
	"github.com/jobthrottle/jobthrottle/throttle"
)

const (
	// calm is how long nothing goes wrong at first, while callers take turns: calls one after the
	// other have one order, so that it takes no search to show that no limiter except this one
	// has such a history, however slow the machine is.
	calm = 700 * time.Millisecond
	// decideWithin bounds how long porcupine may search. Usually it takes only an instant: there
	// are few orders while few calls are open at a time.
	decideWithin = time.Minute
)

// TestTryAcquireIsLinearizable: callers of several Clients try, and now and then release, while
// replies are lost and connections cut. There must be an order, and times of Redis's clock, in
// which each call did what a limiter does: no permit too many is granted, no free permit is
// refused, and a call whose reply was lost leaves nothing behind. A limiter that is wrong by one
// permit, or by 5 ms, would not have a history like this one, not even while all was calm.
func TestTryAcquireIsLinearizable(t *testing.T) {
	rounds, length := 1, 2*time.Second
	if nightly() {
		rounds = 20
	}
	for name, guard := range map[string]time.Duration{"no guard": -1, "guard": 40 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			r := throttle.Rate{Permits: 3, Interval: 50 * time.Millisecond, Guard: guard}
			exact := quota{permits: 3, span: (r.Interval + max(guard, 0)).Microseconds()}
			for seed := range uint64(rounds) {
				calls := troubledCalls(t, r, seed, length)
				judge(t, exact, calls, porcupine.Ok)
				calls = slices.DeleteFunc(calls, func(c call) bool { return c.end > calm.Microseconds() })
				wrong := []quota{{exact.permits - 1, exact.span}, {exact.permits + 1, exact.span}}
				if nightly() { // on a machine that is busy with other tests it stays open what happened when
					wrong = append(wrong, quota{exact.permits, exact.span - 5_000}, quota{exact.permits, exact.span + 5_000})
				}
				for _, w := range wrong {
					judge(t, w, calls, porcupine.Illegal)
				}
			}
		})
	}
}

// judge checks whether a limiter of that quota may have such a history. If not as wanted, it is
// drawn, for go test -artifacts.
func judge(t *testing.T, q quota, calls []call, want porcupine.CheckResult) {
	t.Helper()
	m := q.model()
	got, info := porcupine.CheckOperationsVerbose(m, linear(calls), decideWithin)
	if got == want {
		return
	}
	t.Errorf("%d permits in %d us: the history is %s, want %s", q.permits, q.span, got, want)
	path := filepath.Join(t.ArtifactDir(), fmt.Sprintf("%d-in-%d.html", q.permits, q.span))
	if err := porcupine.VisualizePath(m, info, path); err != nil {
		t.Error(err)
	}
}

// troubledCalls are what callers of a new limiter saw, over a network that cuts connections and
// loses replies.
func troubledCalls(t *testing.T, r throttle.Rate, seed uint64, length time.Duration) []call {
	t.Helper()
	const clients, goroutines = 3, 2
	addr := redistest.Start(t)
	network, err := wire.New(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer network.Close()
	rec := &recorder{begin: time.Now().UnixMicro()}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var wg sync.WaitGroup
	for i := range clients {
		opts := &redis.Options{Addr: network.Addr, ReadTimeout: 100 * time.Millisecond, MinRetryBackoff: time.Millisecond, MaxRetryBackoff: time.Millisecond}
		opts.ContextTimeoutEnabled = i%2 == 1 // callers make calls themselves
		if i > 0 {
			opts.MaxRetries = -1 // with the first, go-redis repeats what was lost
		}
		rdb := redis.NewClient(opts)
		defer rdb.Close()
		c, err := throttle.New(rdb, throttle.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		l, err := c.LimiterWithRate(strings.NewReplacer("/", ":", " ", "_").Replace(t.Name()), r)
		if err != nil {
			t.Fatal(err)
		}
		for k := range goroutines {
			random := rand.New(rand.NewPCG(seed, uint64(1+i*goroutines+k)))
			wg.Go(func() { rec.caller(ctx, caller{i, c, l}, random) })
		}
	}
	pause(ctx, calm)
	trouble(ctx, t, addr, network, rand.New(rand.NewPCG(seed, 0)))
	wg.Wait()
	rec.log(t, seed)
	return rec.calls
}

// trouble makes something go wrong again and again until ctx ends.
func trouble(ctx context.Context, t *testing.T, addr string, network *wire.Wire, random *rand.Rand) {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	for pause(ctx, time.Duration(50+random.IntN(60))*time.Millisecond) {
		var err error
		switch random.IntN(6) {
		case 0:
			network.Cut()
		case 1, 2:
			network.Set(wire.Trouble{LoseReplies: true})
			pause(ctx, time.Duration(1+random.IntN(10))*time.Millisecond)
			network.Set(wire.Trouble{})
		case 3:
			network.Set(wire.Trouble{Delay: 4 * time.Millisecond})
			pause(ctx, 20*time.Millisecond)
			network.Set(wire.Trouble{})
		case 4:
			err = rdb.ScriptFlush(t.Context()).Err()
		case 5:
			err = rdb.ClientKillByFilter(t.Context(), "TYPE", "normal").Err() // not the one that asks for it
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// pause lets time pass, and reports false if ctx ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// recorder writes down what callers see.
type recorder struct {
	begin int64 // us of the machine's clock, which is Redis's too

	turns sync.Mutex // held during each call while all is calm

	mu    sync.Mutex
	calls []call
}

type caller struct {
	no      int // of its client
	client  *throttle.Client
	limiter *throttle.Limiter
}

// caller tries until ctx ends. Only the pauses in between end with ctx, so that each call has an
// outcome.
func (rec *recorder) caller(ctx context.Context, c caller, random *rand.Rand) {
	for pause(ctx, time.Duration(random.IntN(8000))*time.Microsecond) {
		made := rec.note(c, call{verb: tried, n: 1 + max(0, random.Int64N(8)-5)}, func(n int64) (bool, error) {
			return c.limiter.TryAcquire(context.WithoutCancel(ctx), n)
		})
		switch {
		case made.failed:
			pause(ctx, 10*time.Millisecond) // so that it is soon known what became of it
		case made.granted && random.IntN(8) == 0:
			rec.note(c, call{verb: released, n: made.n}, func(n int64) (bool, error) {
				return true, c.limiter.Release(context.WithoutCancel(ctx), n)
			})
		}
	}
}

// note makes a call and writes it down.
func (rec *recorder) note(c caller, made call, do func(n int64) (bool, error)) call {
	rec.turns.Lock()
	if time.Now().UnixMicro()-rec.begin < calm.Microseconds() {
		defer rec.turns.Unlock()
	} else {
		rec.turns.Unlock()
	}
	stale := c.client.Stats().Stale
	made.client = c.no
	made.begin = time.Now().UnixMicro() - rec.begin
	ok, err := do(made.n)
	made.end = time.Now().UnixMicro() - rec.begin
	made.granted, made.failed = ok, err != nil
	made.exchanged = c.client.Stats().Stale - stale
	rec.mu.Lock()
	defer rec.mu.Unlock()
	rec.calls = append(rec.calls, made)
	return made
}

func (rec *recorder) log(t *testing.T, seed uint64) {
	t.Helper()
	var granted, refused, failed, back, exchanged int
	for _, c := range rec.calls {
		exchanged += int(c.exchanged)
		switch {
		case c.verb == released:
			back++
		case c.failed:
			failed++
		case c.granted:
			granted++
		default:
			refused++
		}
	}
	t.Logf("seed %d: %d granted, %d refused, %d failed, %d released, %d may have been exchanged", seed, granted, refused, failed, back, exchanged)
	if granted < 20 || refused < 20 {
		t.Error("nothing was tried that could go wrong")
	}
}
