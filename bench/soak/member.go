//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/throttle"
)

const (
	// waiters is the number of goroutines of a process that acquire all the time.
	waiters = 64
	// keyedEvery is how often a process has a job whose limiter nobody used before, as happens
	// with accounts and tenants. Such a limiter vanishes after keyedFor.
	keyedEvery = 50 * time.Millisecond
	keyedFor   = 5 * time.Second
)

// count is what a process reports about itself.
type count struct {
	Goroutines int
	Acquired   int64
	Errors     int64 // calls that Redis did not answer; they are repeated
}

func newMemberCommand() *cobra.Command {
	var addr string
	var rate int64
	cmd := &cobra.Command{
		Use:    "member",
		Short:  "One of the processes of a soak: acquires until its standard input ends, and counts for each line of it",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runMember(cmd.Context(), addr, rate, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&addr, "redis", "", "`address` of Redis")
	cmd.Flags().Int64Var(&rate, "rate", 0, "permits per second of the limit that all processes share")
	return cmd
}

// runMember acquires until in ends. It answers each line of in with a count.
func runMember(ctx context.Context, addr string, rate int64, in io.Reader, out io.Writer) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	shared, err := client.LimiterWithRate("soak", throttle.Rate{Permits: rate, Interval: time.Second})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	for range waiters {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := shared.Acquire(ctx, 1); err != nil {
					cancel(err) // only the first cause counts; at the end, ctx has already ended
				}
			}
		})
	}
	wg.Go(func() { cancel(comeAndGo(ctx, client)) })

	tell := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan() && context.Cause(ctx) == nil; {
		s := client.Stats()
		if err := tell.Encode(count{runtime.NumGoroutine(), s.Grants, s.Errors}); err != nil {
			return err
		}
	}
	failed := context.Cause(ctx)
	cancel(nil)
	wg.Wait()
	if err := client.Close(); failed == nil {
		failed = err
	}
	return failed
}

// comeAndGo acquires from one new limiter after another until ctx ends.
func comeAndGo(ctx context.Context, client *throttle.Client) error {
	next := time.NewTicker(keyedEvery)
	defer next.Stop()
	for i := 0; ; i++ {
		l, err := client.LimiterWithRate("soak-account:"+client.ID()+"-"+strconv.Itoa(i), throttle.Rate{Permits: 10, Interval: time.Second, KeepAlive: keyedFor})
		if err != nil {
			return err
		}
		if err := l.Acquire(ctx, 1); err != nil {
			return err
		}
		select {
		case <-next.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// member is a process that the soak has started.
type member struct {
	cmd    *exec.Cmd
	said   bytes.Buffer // on its standard error; read it only when it has ended
	ask    io.WriteCloser
	answer *json.Decoder
}

// startMember runs this program again, as a member.
func startMember(addr string, rate int64) (*member, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	m := &member{cmd: exec.Command(self, "member", "--redis", addr, "--rate", strconv.FormatInt(rate, 10))}
	m.cmd.Stderr = &m.said
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the soak, which then ends its processes
	if m.ask, err = m.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	m.answer = json.NewDecoder(out)
	return m, m.cmd.Start()
}

// count asks the process for its count.
func (m *member) count() (c count, err error) {
	if _, err := io.WriteString(m.ask, "count\n"); err != nil {
		return c, fmt.Errorf("process %d has ended: %w", m.cmd.Process.Pid, err)
	}
	if err := m.answer.Decode(&c); err != nil {
		return c, fmt.Errorf("process %d has ended: %w", m.cmd.Process.Pid, err)
	}
	return c, nil
}

// rss is the memory of the process, in bytes, as Linux counts it.
func (m *member) rss() (int64, error) {
	name := fmt.Sprintf("/proc/%d/status", m.cmd.Process.Pid)
	text, err := os.ReadFile(name)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if kb, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), "kB")), 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no VmRSS", name)
}

// stop lets the process end, and returns what it says was wrong.
func (m *member) stop() error {
	m.ask.Close()
	if err := m.cmd.Wait(); err != nil {
		return fmt.Errorf("process %d: %w, saying %q", m.cmd.Process.Pid, err, m.said.String())
	}
	return nil
}
