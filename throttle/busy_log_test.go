package throttle_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/redis/go-redis/v9"
)

// mostMemory is how much memory the keys of a limiter may take, however high its rate and however
// many wait.
const mostMemory = 128 << 10

// busyLog is a limiter of a high rate that is kept fully used for two intervals.
type busyLog struct {
	rate       throttle.Rate
	goroutines int // of each of eight Clients
}

// busyLogs are fleets that would fill a log that grows with its rate: at full
// size they take four minutes.
func busyLogs() []busyLog {
	if nightly() {
		r := throttle.Rate{Permits: 100_000, Interval: time.Minute}
		return []busyLog{{r, 64}, {r, 1250}, {throttle.Rate{Permits: 257, Interval: 20 * time.Second, Smooth: true}, 128}}
	}
	r := throttle.Rate{Permits: 10_000, Interval: 2 * time.Second}
	return []busyLog{{r, 64}, {r, 250}, {throttle.Rate{Permits: 257, Interval: 2 * time.Second, Smooth: true}, 128}}
}

func (l busyLog) String() string {
	return fmt.Sprintf("%s with %d waiters", strings.ReplaceAll(l.rate.String(), "/", " per "), 8*l.goroutines)
}

// busyLogOutcome is what a busy log cost Redis.
type busyLogOutcome struct {
	outcome
	memory  map[string]int64 // of the limiter's keys, when they took most together
	longest time.Duration    // the longest script call
	above   int              // script calls above slowCall
	control control
	typical time.Duration // the mean of all
}

// slowCall is how long a script call may take at most on a machine of its own.
const slowCall = 2 * time.Millisecond

// control is a script that does nothing but count, for about as long as a typical call, and is
// called as often. Redis times calls by the wall clock: if this one takes longer than its mean,
// the machine took that time.
type control struct {
	calls   int
	longest time.Duration
	above   int // calls above slowCall
}

var counting = redis.NewScript(`for _ = 1, 60000 do end`)

// count calls the control now and then until it is told to stop, and returns how often.
func count(tb testing.TB, rdb *redis.Client, every time.Duration, stop <-chan struct{}) (calls int) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return calls
		case <-tick.C:
			if err := counting.Run(context.Background(), rdb, nil).Err(); err != nil && err != redis.Nil {
				tb.Error(err)
				return calls
			}
			calls++
		}
	}
}

func (o busyLogOutcome) bytes() (sum int64) {
	for _, n := range o.memory {
		sum += n
	}
	return sum
}

// run keeps the limiter busy, with or without the control running beside it.
func (l busyLog) run(tb testing.TB, addr string, controlled bool) busyLogOutcome {
	tb.Helper()
	if controlled {
		// Redis has a core to itself: it times calls by the wall clock.
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(1, runtime.NumCPU()-1)))
	}
	admin := redis.NewClient(&redis.Options{Addr: addr})
	defer admin.Close()
	for name, value := range map[string]string{"slowlog-log-slower-than": "500", "slowlog-max-len": "100000"} {
		if err := admin.ConfigSet(context.Background(), name, value).Err(); err != nil {
			tb.Fatal(err)
		}
	}
	// A little longer, so that the second interval still has waiters for the third.
	f := fleet{rate: l.rate, clients: 8, goroutines: l.goroutines, length: 2*l.rate.Interval + l.rate.Interval/20}

	var most busyLogOutcome
	stop := make(chan struct{})
	var sampler sync.WaitGroup
	sampler.Go(func() {
		tick := time.NewTicker(f.length / 200)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				now := busyLogOutcome{memory: memoryOfKeys(tb, admin)}
				if now.bytes() > most.bytes() {
					most = now
				}
			}
		}
	})
	var control control
	if controlled {
		sampler.Go(func() { control.calls = count(tb, admin, f.length/4000, stop) })
	}
	ran := f.run(tb, addr)
	close(stop)
	sampler.Wait()
	out := busyLogOutcome{outcome: ran, memory: most.memory}

	slow, err := admin.SlowLogGet(context.Background(), -1).Result()
	if err != nil {
		tb.Fatal(err)
	}
	for _, call := range slow {
		if !strings.HasPrefix(strings.ToLower(call.Args[0]), "eval") {
			continue
		}
		longest, above := &out.longest, &out.above
		if call.Args[1] == counting.Hash() {
			longest, above = &control.longest, &control.above
		}
		*longest = max(*longest, call.Duration)
		if call.Duration > slowCall {
			*above++
		}
	}
	out.control = control
	out.typical = out.redisCPU / time.Duration(max(out.calls, 1))
	return out
}

// memoryOfKeys is how much memory each key of a Redis takes.
func memoryOfKeys(tb testing.TB, rdb *redis.Client) map[string]int64 {
	ctx := context.Background()
	keys, err := rdb.Keys(ctx, "*").Result()
	if err != nil {
		tb.Error(err)
		return nil
	}
	memory := make(map[string]int64, len(keys))
	for _, key := range keys {
		n, err := rdb.MemoryUsage(ctx, key, 0).Result()
		if err == redis.Nil {
			continue // expired meanwhile
		}
		if err != nil {
			tb.Error(err)
			return nil
		}
		memory[key] = n
	}
	return memory
}

// TestBusyLogStaysSmall: what a limiter costs Redis does not grow with its rate, nor with the
// number of those who wait for it.
func TestBusyLogStaysSmall(t *testing.T) {
	for _, l := range busyLogs() {
		t.Run(l.String(), func(t *testing.T) {
			o := l.run(t, redistest.Start(t), false)
			t.Logf("%d permits, %d calls, at most %d KiB of keys, longest call %v, %d above %v, all in all %v a call, %d stale, %d late, busiest %d",
				o.permits(), o.calls, o.bytes()>>10, o.longest, o.above, slowCall, o.typical, o.stale, o.late, o.busiest(l.rate.Interval))
			if o.bytes() > mostMemory {
				t.Errorf("the limiter's keys took %d bytes, want at most %d: %v", o.bytes(), mostMemory, o.memory)
			}
			checkBusiest(t, o.outcome, l.rate)
			if nightly() && o.permits() <= l.rate.Permits {
				t.Errorf("%d permits in two intervals: the limiter was not kept busy", o.permits())
			}
		})
	}
}

// BenchmarkBusyLog prints what a limiter of a high rate costs Redis:
//
//	JOBTHROTTLE_NIGHTLY=1 go test -run - -bench BusyLog -benchtime 1x -timeout 20m ./throttle
func BenchmarkBusyLog(b *testing.B) {
	for _, l := range busyLogs() {
		b.Run(l.String(), func(b *testing.B) {
			addr := redistest.Start(b)
			for b.Loop() {
				o := l.run(b, addr, true)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(float64(o.permits()), "permits")
				b.ReportMetric(float64(o.bytes())/1024, "KiB")
				b.ReportMetric(float64(o.longest.Microseconds())/1000, "longest-call-ms")
				b.ReportMetric(float64(o.above), "calls-above-2ms")
				b.ReportMetric(float64(o.calls), "calls")
				b.ReportMetric(float64(o.control.longest.Microseconds())/1000, "longest-control-ms")
				b.ReportMetric(float64(o.control.above), "controls-above-2ms")
				b.ReportMetric(float64(o.control.calls), "controls")
			}
		})
	}
}
