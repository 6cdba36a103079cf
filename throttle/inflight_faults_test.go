package throttle

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

const (
	// slotsChildEnv makes the test binary hold slots of the Redis at that address.
	slotsChildEnv = "JOBTHROTTLE_TEST_SLOTS"
	// childSlots and childLease are the limit that the children share.
	childSlots, childLease = 5, 3 * time.Second
	// childHolders is how many holders each child has.
	childHolders = 8
	// sampled is how often a holder that runs says so.
	sampled = 2 * time.Millisecond
)

// TestSlotsChild is not a test: it is one of the processes of TestSlotsUnderFaults. Its holders
// write a line with the time whenever they run and their context has not ended.
func TestSlotsChild(t *testing.T) {
	addr, out := os.Getenv(slotsChildEnv), os.Getenv(slotsChildEnv+"_OUT")
	if addr == "" {
		t.Skip("run by TestSlotsUnderFaults")
	}
	file, err := os.OpenFile(out, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	check(t, err)
	rdb := dial(t, addr)
	c, err := New(rdb, Options{})
	check(t, err)
	if lease, err := time.ParseDuration(os.Getenv(slotsChildEnv + "_HOLD")); err == nil {
		f, err := c.InFlight("slots", Slots{Limit: 1, Lease: lease})
		check(t, err)
		_, err = f.Acquire(context.Background(), "dead")
		check(t, err)
		select {}
	}
	f, err := c.InFlight("slots", Slots{Limit: childSlots, Lease: childLease})
	check(t, err)
	for i := range childHolders {
		go func() {
			for n := 0; ; n++ {
				lease, err := f.Acquire(context.Background(), fmt.Sprint(os.Getpid(), ":", i, ":", n))
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					continue
				}
				for end := time.Now().Add(rand.N(60 * time.Millisecond)); ; time.Sleep(sampled) {
					at := time.Now()
					if lease.Context().Err() != nil {
						break
					}
					fmt.Fprintf(file, "%d:%d:%d %d\n", os.Getpid(), i, n, at.UnixNano())
					if at.After(end) {
						break
					}
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				_ = lease.Release(ctx)
				cancel()
			}
		}()
	}
	select {}
}

// slotsChild is such a process.
type slotsChild struct {
	t    *testing.T
	addr string
	out  string
	hold time.Duration // not 0: it holds one slot with a lease of that length, and does nothing else
	cmd  *exec.Cmd
}

func (c *slotsChild) start() {
	c.cmd = exec.Command(os.Args[0], "-test.run=^TestSlotsChild$")
	c.cmd.Env = append(os.Environ(), slotsChildEnv+"="+c.addr, slotsChildEnv+"_OUT="+c.out)
	if c.hold > 0 {
		c.cmd.Env = append(c.cmd.Env, slotsChildEnv+"_HOLD="+c.hold.String())
	}
	check(c.t, c.cmd.Start())
}

func (c *slotsChild) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// TestSlotOfAKilledProcess: a process that holds the only slot is killed. Another gets the slot
// when the lease has run out, by Redis's clock, and within a second after that.
func TestSlotOfAKilledProcess(t *testing.T) {
	t.Parallel()
	lease := 3 * time.Second
	if os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" {
		lease = DefaultLease
	}
	addr := redistest.Start(t)
	child := &slotsChild{t: t, addr: addr, out: t.TempDir() + "/none"}
	child.hold = lease
	child.start()
	t.Cleanup(child.kill)
	rdb := dial(t, addr)
	ends := func() time.Duration {
		ms, err := rdb.ZScore(t.Context(), "{slots}:slots", "dead").Result()
		if err != nil {
			return 0
		}
		return time.Duration(ms) * time.Millisecond
	}
	for ends() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	first := ends()
	for ends() == first { // until it is renewed
		time.Sleep(10 * time.Millisecond)
	}
	child.kill()
	renewed := ends() - lease
	c, err := New(rdb, Options{})
	check(t, err)
	f, err := c.InFlight("slots", Slots{Limit: 1, Lease: lease})
	check(t, err)
	l, err := f.Acquire(t.Context(), "next")
	check(t, err)
	now, err := rdb.Time(t.Context()).Result()
	check(t, err)
	took := time.Duration(now.UnixNano()) - renewed
	t.Logf("free %v after the last renewal of a lease of %v", took, lease)
	if took < lease || took > lease+time.Second {
		t.Errorf("free %v after the last renewal, want %v and at most a second more", took, lease)
	}
	check(t, l.Release(t.Context()))
	check(t, c.Close())
}

// TestSlotsUnderFaults: processes that share a limit in flight are killed, are stopped and go on,
// and lose their connections, and Redis is killed and comes back with everything it wrote. Never
// do more run than the limit says, and those that are left go on.
func TestSlotsUnderFaults(t *testing.T) {
	t.Parallel()
	seeds, lasts := uint64(1), 15*time.Second
	if os.Getenv("JOBTHROTTLE_NIGHTLY") == "1" {
		seeds, lasts = 20, 30*time.Second
	}
	for seed := range seeds {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { slotsUnderFaults(t, seed, lasts) })
	}
}

func slotsUnderFaults(t *testing.T, seed uint64, lasts time.Duration) {
	server := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	random := rand.New(rand.NewPCG(seed, 1))
	out := t.TempDir() + "/samples"
	children := make([]*slotsChild, 3)
	for i := range children {
		children[i] = &slotsChild{t: t, addr: server.Addr, out: out}
		children[i].start()
	}
	t.Cleanup(func() {
		for _, c := range children {
			c.kill()
		}
	})
	var faults []string
	for began := time.Now(); time.Since(began) < lasts; {
		time.Sleep(time.Duration(300+random.IntN(900)) * time.Millisecond)
		c := children[random.IntN(len(children))]
		switch what := random.IntN(5); what {
		case 0:
			faults = append(faults, "kill")
			c.kill()
			c.start()
		case 1, 2:
			d := time.Duration(500+random.IntN(5000)) * time.Millisecond
			faults = append(faults, "stop "+d.String())
			check(t, c.cmd.Process.Signal(syscall.SIGSTOP))
			time.Sleep(d)
			check(t, c.cmd.Process.Signal(syscall.SIGCONT))
		case 3:
			faults = append(faults, "cut")
			rdb := dial(t, server.Addr)
			for range 5 {
				_ = rdb.Do(t.Context(), "client", "kill", "skipme", "yes").Err()
				time.Sleep(50 * time.Millisecond)
			}
		case 4:
			faults = append(faults, "restart")
			server.Stop()
			time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
			server.Restart()
		}
	}
	quiet := time.Now()
	time.Sleep(childLease + time.Second)
	for _, c := range children {
		c.kill()
	}
	most, runs, late := judgeSlots(t, out, quiet.Add(childLease))
	t.Logf("seed %d: %d runs, at most %d of %d at a time; %s", seed, runs, most, childSlots, strings.Join(faults, ", "))
	if most > childSlots {
		t.Errorf("seed %d: %d ran at a time, the limit is %d", seed, most, childSlots)
	}
	if late < 10 {
		t.Errorf("seed %d: %d runs in the last second: it does not go on", seed, late)
	}
}

// judgeSlots returns how many ran at a time at most, how many runs there were, and how many ran
// after that time. A holder runs between two samples, unless they are so far apart that its
// process was stopped between them.
func judgeSlots(t *testing.T, path string, after time.Time) (most, runs, late int) {
	file, err := os.Open(path)
	check(t, err)
	defer file.Close()
	type edge struct {
		at    int64
		delta int
	}
	var edges []edge
	first, last := map[string]int64{}, map[string]int64{}
	close := func(id string) { edges = append(edges, edge{first[id], 1}, edge{last[id], -1}) }
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var at int64
		id, text, _ := strings.Cut(lines.Text(), " ")
		if _, err := fmt.Sscan(text, &at); err != nil {
			continue // a process was killed while it wrote
		}
		if before, known := last[id]; !known {
			runs++
			if at > after.UnixNano() {
				late++
			}
			first[id] = at
		} else if at-before > (400 * time.Millisecond).Nanoseconds() {
			close(id)
			first[id] = at
		}
		last[id] = at
	}
	for id := range first {
		close(id)
	}
	slices.SortFunc(edges, func(a, b edge) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.delta, b.delta)) })
	now := 0
	for _, e := range edges {
		now += e.delta
		most = max(most, now)
	}
	return most, runs, late
}
