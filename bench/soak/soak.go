//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
)

const (
	processes  = 2
	stoppedFor = 2 * time.Second
)

// soak is a run: what it loads, and what it saw.
type soak struct {
	opts    options
	server  *redisserver.Server
	admin   *redis.Client
	members []*member
	begin   time.Time
	samples []sample
	faults  int
}

// sample is the state at one time.
type sample struct {
	at         time.Duration
	rss        []int64 // bytes, of each process
	goroutines []int   // of each process
	acquired   int64   // by all, since the beginning
	errors     int64
	redis      redisserver.Memory
}

// run soaks, writes its section and judges the result. It leaves no process behind.
func run(ctx context.Context, opts options, stdout, stderr io.Writer) (err error) {
	server, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	s := &soak{opts: opts, server: server, admin: redis.NewClient(&redis.Options{Addr: server.Addr}), begin: time.Now()}
	defer s.admin.Close()
	for range processes {
		m, err := startMember(server.Addr, opts.rate)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, m.stop()) }()
		s.members = append(s.members, m)
	}
	if err := s.watch(ctx, stderr); err != nil {
		return err
	}
	return s.report(stdout)
}

// watch takes samples until the time is over. It makes trouble after every second sample, so
// that the time between trouble and sample is always the same.
func (s *soak) watch(ctx context.Context, progress io.Writer) error {
	sampling := time.NewTicker(min(10*time.Second, s.opts.length/20))
	defer sampling.Stop()
	end := time.NewTimer(s.opts.length)
	defer end.Stop()
	for {
		select {
		case <-sampling.C:
		case <-end.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := s.sample(ctx); err != nil {
			return err
		}
		fmt.Fprintf(progress, "%v: %s\n", s.passed(), s.samples[len(s.samples)-1])
		if len(s.samples)%2 == 0 {
			what, err := s.fault(ctx)
			if err != nil {
				return err
			}
			fmt.Fprintf(progress, "%v: %s\n", s.passed(), what)
		}
	}
}

func (s *soak) passed() time.Duration { return time.Since(s.begin).Round(time.Second) }

// fault makes the next thing go wrong, and says what.
func (s *soak) fault(ctx context.Context) (what string, err error) {
	s.faults++
	switch s.faults % 3 {
	case 1:
		m := s.members[s.faults%len(s.members)]
		return fmt.Sprintf("process %d is stopped for %v", m.cmd.Process.Pid, stoppedFor), m.stopFor(ctx, stoppedFor)
	case 2:
		return "all connections are killed", errors.Join( // except the one that asks for it
			s.admin.ClientKillByFilter(ctx, "TYPE", "normal").Err(), s.admin.ClientKillByFilter(ctx, "TYPE", "pubsub").Err())
	}
	return "all scripts are forgotten", s.admin.ScriptFlush(ctx).Err()
}

// stopFor stops the process as if its machine hung.
func (m *member) stopFor(ctx context.Context, d time.Duration) error {
	if err := m.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
	return m.cmd.Process.Signal(syscall.SIGCONT)
}

// sample records the present state.
func (s *soak) sample(ctx context.Context) (err error) {
	now := sample{at: time.Since(s.begin)}
	for _, m := range s.members {
		c, err := m.count()
		if err != nil {
			return err
		}
		rss, err := m.rss()
		if err != nil {
			return err
		}
		now.rss, now.goroutines = append(now.rss, rss), append(now.goroutines, c.Goroutines)
		now.acquired += c.Acquired
		now.errors += c.Errors
	}
	if now.redis, err = s.server.Memory(ctx); err != nil {
		return err
	}
	s.samples = append(s.samples, now)
	return nil
}

func (now sample) String() string {
	text := fmt.Sprintf("%d acquired, %d calls failed; processes", now.acquired, now.errors)
	for i := range now.rss {
		text += fmt.Sprintf(" %s and %d goroutines,", megabytes(float64(now.rss[i])), now.goroutines[i])
	}
	return text + fmt.Sprintf(" Redis %s, %d keys, %d of them for good", megabytes(float64(now.redis.Used)), now.redis.Keys, now.redis.Lasting)
}

// report writes the section, and prints where. It returns an error if anything has grown.
func (s *soak) report(stdout io.Writer) error {
	dir := s.opts.out
	var err error
	if dir == "" {
		dir, err = os.MkdirTemp("", "jobthrottle-soak-")
	} else {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	v := s.judge()
	section := v.section()
	name := filepath.Join(dir, sectionFile)
	if err := os.WriteFile(name, []byte(section), 0o644); err != nil {
		return err
	}
	fmt.Fprint(stdout, section)
	fmt.Fprintln(stdout, name)
	return v.err()
}
