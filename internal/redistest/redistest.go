// Package redistest gives each test a Redis server of its own, so that tests use a real server
// and never disturb each other.
package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// RequireEnv names a variable. If it is 1, a test fails without redis-server instead of being
// skipped.
const RequireEnv = "JOBTHROTTLE_REQUIRE_REDIS"

// maxStarts is the maximum number of attempts to find a port: another process may take the port
// that we picked before redis-server binds it.
const maxStarts = 10

// Server is a redis-server process that a test owns. Addr and the directory stay the same over
// Stop and Restart: with "--appendonly", "yes" its data survives too. It is not safe for
// concurrent use.
type Server struct {
	Addr string // host:port on loopback

	tb     testing.TB
	dir    string
	args   func(port string) []string
	cmd    *exec.Cmd
	exited chan struct{} // closed once the process has ended and was waited for
}

// Start runs a redis-server for the length of the test and returns its address. Nothing is
// saved to disk unless args, which are redis-server's own, say so. Without redis-server the
// test is skipped, or fails if RequireEnv is 1.
func Start(tb testing.TB, args ...string) string {
	tb.Helper()
	return New(tb, args...).Addr
}

// New is Start for tests that stop and restart their server.
func New(tb testing.TB, args ...string) *Server {
	tb.Helper()
	return launch(tb, func(port string) []string { return append(inMemory(port), args...) })
}

// Require skips the test without redis-server, or fails it if RequireEnv is 1.
func Require(tb testing.TB) {
	tb.Helper()
	_, err := exec.LookPath("redis-server")
	switch {
	case err == nil:
	case os.Getenv(RequireEnv) == "1":
		tb.Fatalf("redis-server is required (%s=1) and missing: %v", RequireEnv, err)
	default:
		tb.Skipf("redis-server is missing, install it to run this test: %v", err)
	}
}

// launch starts a server whose arguments depend on its port.
func launch(tb testing.TB, args func(port string) []string) *Server {
	tb.Helper()
	Require(tb)
	s := &Server{tb: tb, dir: tb.TempDir(), args: args}
	tb.Cleanup(s.Stop)
	var err error
	for range maxStarts {
		s.Addr = FreeAddr(tb)
		if err = s.start(); err == nil {
			return s
		}
	}
	tb.Fatalf("redis-server did not start: %v", err)
	return nil
}

// Stop kills the server as a power cut would, and returns when the process has ended. Stopping
// twice is harmless.
func (s *Server) Stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.exited
	s.cmd = nil
}

// HostPort is Addr in two parts.
func (s *Server) HostPort() (host, port string) {
	s.tb.Helper()
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		s.tb.Fatal(err)
	}
	return host, port
}

// Freeze stops the process without ending it, like a machine that hangs; Thaw lets it go on.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw ends what Freeze began.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatal(err)
	}
}

// Restart starts a stopped server again on its address and directory, stopping it first if it runs.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Stop()
	if err := s.start(); err != nil {
		s.tb.Fatalf("redis-server did not come back: %v", err)
	}
}

// start returns once the server accepts connections. If it ends before, the error quotes its
// log.
func (s *Server) start() error {
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	// A configuration file, if there is one, must come first, so that it overrides nothing.
	args := append(s.args(port), "--bind", "127.0.0.1", "--dir", s.dir, "--logfile", "")
	cmd := exec.Command("redis-server", args...)
	own(cmd)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	said := make(chan error, 1)
	go func() {
		defer close(exited)
		said <- awaitReady(stdout)
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
	}()
	if err := <-said; err != nil {
		<-exited
		return err
	}
	s.cmd, s.exited = cmd, exited
	return nil
}

// inMemory are the arguments of a server that saves nothing.
func inMemory(port string) []string {
	return []string{"--port", port, "--save", "", "--appendonly", "no"}
}

// awaitReady reads the server's log up to the line that says that it accepts connections.
func awaitReady(log io.Reader) error {
	var last string
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.Contains(lines.Text(), "Ready to accept connections") || strings.Contains(lines.Text(), "Sentinel ID is") {
			return nil
		}
		last = lines.Text()
	}
	if last == "" {
		return errors.New("it exited silently")
	}
	return fmt.Errorf("it exited, last saying %q", last)
}
