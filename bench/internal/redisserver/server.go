// Package redisserver runs the redis-server on which everything is measured.
package redisserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"

	"github.com/redis/go-redis/v9"
)

// maxStarts is the maximum number of attempts to find a port: another process may take the port
// that we picked before redis-server binds it.
const maxStarts = 10

// Server is a redis-server process on a loopback port and in a directory of its own. Addr and
// directory stay the same over Kill and Restart. It is not safe for concurrent use.
type Server struct {
	// Addr is its host:port.
	Addr string

	admin  *redis.Client
	dir    string
	args   []string // those of Start
	cmd    *exec.Cmd
	exited chan struct{} // closed once the process has ended and was waited for
}

// Start returns when the server accepts connections. It saves nothing to disk unless args,
// which are redis-server's own, say so. The caller has to Stop it.
func Start(args ...string) (*Server, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, fmt.Errorf("redis-server is missing: install it, or put it on the PATH: %w", err)
	}
	dir, err := os.MkdirTemp("", "jobthrottle-bench-redis-")
	if err != nil {
		return nil, err
	}
	for range maxStarts {
		s := &Server{dir: dir, args: args}
		if s.Addr, err = freeAddr(); err != nil {
			break
		}
		if err = s.start(); err == nil {
			s.admin = redis.NewClient(&redis.Options{Addr: s.Addr})
			return s, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("redis-server did not start: %w", err), os.RemoveAll(dir))
}

// start starts the process, and returns when it accepts connections.
func (s *Server) start() error {
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	args := []string{"--bind", "127.0.0.1", "--port", port, "--dir", s.dir, "--save", "", "--appendonly", "no", "--logfile", ""}
	cmd := exec.Command("redis-server", append(args, s.args...)...)
	detach(cmd)
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

// awaitReady reads the server's log up to the line that says that it accepts connections.
func awaitReady(log io.Reader) error {
	var last string
	for lines := bufio.NewScanner(log); lines.Scan(); {
		if strings.Contains(lines.Text(), "Ready to accept connections") {
			return nil
		}
		last = lines.Text()
	}
	return fmt.Errorf("it exited, last saying %q", last)
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// Kill ends the process as a power cut would, and waits until it is gone.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // an error means that it is gone already
	<-s.exited
}

// Restart kills the process, if it runs, and starts it again. The server keeps what it saved to
// disk.
func (s *Server) Restart() error {
	s.Kill()
	var err error
	for range maxStarts { // somebody's connection may briefly have had the port
		if err = s.start(); err == nil {
			return nil
		}
	}
	return fmt.Errorf("redis-server did not come back: %w", err)
}

// Signal sends the process a signal.
func (s *Server) Signal(sig os.Signal) error { return s.cmd.Process.Signal(sig) }

// Stop ends the server, waits until it is gone, and removes its directory.
func (s *Server) Stop() error {
	s.Kill() // what it would have to save is deleted with the directory
	return errors.Join(s.admin.Close(), os.RemoveAll(s.dir))
}

// Flush removes all keys, so that the next measurement starts with an empty server. Scripts
// stay loaded.
func (s *Server) Flush(ctx context.Context) error { return s.admin.FlushAll(ctx).Err() }
