//go:build linux

package throttle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"
)

// memberEnv tells this test binary, when it starts itself, that it is a process of a fleet.
const memberEnv = "JOBTHROTTLE_FLEET_MEMBER"

// orders are what a member is to do.
type orders struct {
	Addr       string
	Name       string
	Rate       throttle.Rate
	Goroutines int
	Length     time.Duration
	PauseAfter time.Duration // zero: this member does not pause the limiter
	PauseFor   time.Duration
}

// memberReport is what a member did and saw, in times of the shared clock.
type memberReport struct {
	Uses   []memberUse
	Paused pausing
	Stats  throttle.Stats
}

type memberUse struct {
	At        time.Duration
	Goroutine int
}

// pausing is a call of Pause.
type pausing struct{ Called, Returned time.Duration }

// sharedClock is a clock that does not step and that all processes of the machine share.
func sharedClock(tb testing.TB) time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		tb.Error(err)
	}
	return time.Duration(ts.Nano())
}

// TestFleetMember is a process of a fleet, if it is started as one: it says that it is ready,
// reads when to start, and reports at the end.
func TestFleetMember(t *testing.T) {
	text, ok := os.LookupEnv(memberEnv)
	if !ok {
		t.Skip("runs in the processes that the fleet tests start")
	}
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: o.Addr, ContextTimeoutEnabled: true})
	defer rdb.Close()
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := client.LimiterWithRate(o.Name, o.Rate)
	if err != nil {
		t.Fatal(err)
	}
	say := json.NewEncoder(os.Stdout)
	if err := say.Encode("ready"); err != nil {
		t.Fatal(err)
	}
	var start time.Duration
	if err := json.NewDecoder(os.Stdin).Decode(&start); err != nil {
		t.Fatal(err)
	}
	<-time.After(start - sharedClock(t))
	report := o.follow(t, l)
	report.Stats = client.Stats()
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := say.Encode(report); err != nil {
		t.Fatal(err)
	}
}

// follow acquires in all goroutines until the member's time is over.
func (o orders) follow(t *testing.T, l *throttle.Limiter) (report memberReport) {
	ctx, cancel := context.WithTimeout(t.Context(), o.Length)
	defer cancel()
	var wg sync.WaitGroup
	uses := make([][]memberUse, o.Goroutines)
	for g := range o.Goroutines {
		wg.Go(func() {
			for l.Acquire(ctx, 1) == nil {
				uses[g] = append(uses[g], memberUse{sharedClock(t), g})
			}
		})
	}
	if o.PauseAfter > 0 {
		<-time.After(o.PauseAfter)
		report.Paused.Called = sharedClock(t)
		if err := l.Pause(ctx, o.PauseFor); err != nil {
			t.Error(err)
		}
		report.Paused.Returned = sharedClock(t)
	}
	wg.Wait()
	report.Uses = slices.Concat(uses...)
	return report
}

// member is a process of a fleet as its test sees it.
type member struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout io.ReadCloser
	said   *json.Decoder
	stderr bytes.Buffer
	ended  bool
}

// startMember starts a process of a test program. It does not outlive the test.
func startMember(tb testing.TB, program string, o orders) *member {
	tb.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		tb.Fatal(err)
	}
	m := &member{cmd: exec.Command(program, "-test.run=^TestFleetMember$", "-test.count=1")}
	m.cmd.Env = append(os.Environ(), memberEnv+"="+string(text))
	m.cmd.Stderr = &m.stderr
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // also one that is stopped
	if m.stdin, err = m.cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if m.stdout, err = m.cmd.StdoutPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := m.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if !m.ended {
			_ = m.cmd.Process.Kill()
			_ = m.cmd.Wait()
		}
	})
	m.said = json.NewDecoder(m.stdout)
	return m
}

// hear reads the next message of a member.
func (m *member) hear(tb testing.TB, v any) {
	tb.Helper()
	if err := m.said.Decode(v); err != nil {
		rest, _ := io.ReadAll(io.MultiReader(m.said.Buffered(), m.stdout))
		tb.Fatalf("a member of the fleet ended: %v\n%s\n%s", err, rest, &m.stderr)
	}
}

// end waits for the process.
func (m *member) end(tb testing.TB) {
	tb.Helper()
	rest, _ := io.ReadAll(io.MultiReader(m.said.Buffered(), m.stdout))
	m.ended = true
	if err := m.cmd.Wait(); err != nil {
		tb.Errorf("a member of the fleet: %v\n%s\n%s", err, rest, &m.stderr)
	}
}

// signal stops or continues the process.
func (m *member) signal(tb testing.TB, s os.Signal) {
	tb.Helper()
	if err := m.cmd.Process.Signal(s); err != nil {
		tb.Fatal(err)
	}
}

// fleetOfProcesses is a fleet in which each Client has a process of its own.
type fleetOfProcesses struct {
	fleet
	pauseAfter, pauseFor time.Duration      // by the first process
	during               func(ms []*member) // while they run
	shifts               []shift            // nil: each works all the time
}

// shift is when a process works, and which test program it runs.
type shift struct {
	program       string
	after, length time.Duration
}

// run lets the fleet acquire for its length. The second result is when the
// first process paused the limiter, if it did.
func (f fleetOfProcesses) run(tb testing.TB, addr string) (outcome, pausing) {
	tb.Helper()
	shifts := f.shifts
	if shifts == nil {
		shifts = slices.Repeat([]shift{{program: os.Args[0], length: f.length}}, f.clients)
	}
	var ms []*member
	for i, s := range shifts {
		o := orders{Addr: addr, Name: strings.ReplaceAll(tb.Name(), "/", ":"), Rate: f.rate, Goroutines: f.goroutines, Length: s.length}
		if i == 0 {
			o.PauseAfter, o.PauseFor = f.pauseAfter, f.pauseFor
		}
		ms = append(ms, startMember(tb, s.program, o))
	}
	for _, m := range ms {
		var ready string
		m.hear(tb, &ready)
	}
	start := sharedClock(tb) + 100*time.Millisecond
	for i, m := range ms {
		if _, err := fmt.Fprintln(m.stdin, int64(start+shifts[i].after)); err != nil {
			tb.Fatal(err)
		}
	}
	if f.during != nil {
		f.during(ms)
	}
	out := outcome{length: f.length}
	var paused pausing
	for i, m := range ms {
		var r memberReport
		m.hear(tb, &r)
		m.end(tb)
		for _, u := range r.Uses {
			out.uses = append(out.uses, use{at: u.At - start, n: 1, client: i, goroutine: u.Goroutine})
		}
		out.calls += r.Stats.Calls
		out.stale += r.Stats.Stale
		out.late += r.Stats.Late
		if i == 0 {
			paused = pausing{r.Paused.Called - start, r.Paused.Returned - start}
		}
	}
	slices.SortFunc(out.uses, func(a, b use) int { return int(a.at - b.at) })
	return out, paused
}
