// Package redisserver runs the one redis-server that everything is measured on.
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

// maxStarts bounds the attempts to find a port: another process may take the one we picked before redis-server binds it.
const maxStarts = 10

// Server is a redis-server process on a loopback port and in a directory of its own. It saves nothing.
type Server struct {
	// Addr is its host:port.
	Addr string

	admin  *redis.Client
	dir    string
	cmd    *exec.Cmd
	exited chan struct{} // closed once the process is gone and waited for
}

// Start returns when the server accepts connections. The caller has to Stop it.
func Start() (*Server, error) {
	if _, err := exec.LookPath("redis-server"); err != nil {
		return nil, fmt.Errorf("redis-server is missing: install it, or put it on the PATH: %w", err)
	}
	dir, err := os.MkdirTemp("", "jobthrottle-bench-redis-")
	if err != nil {
		return nil, err
	}
	for range maxStarts {
		var s *Server
		if s, err = start(dir); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(fmt.Errorf("redis-server did not start: %w", err), os.RemoveAll(dir))
}

func start(dir string) (*Server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("redis-server",
		"--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "no", "--logfile", "")
	detach(cmd)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &Server{Addr: addr, dir: dir, cmd: cmd, exited: make(chan struct{})}
	said := make(chan error, 1)
	go func() {
		defer close(s.exited)
		said <- awaitReady(stdout)
		_, _ = io.Copy(io.Discard, stdout)
		_ = cmd.Wait()
	}()
	if err := <-said; err != nil {
		<-s.exited
		return nil, err
	}
	s.admin = redis.NewClient(&redis.Options{Addr: addr})
	return s, nil
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

// Stop ends the server, waits until it is gone, and removes its directory.
func (s *Server) Stop() error {
	err := s.admin.Close()
	_ = s.cmd.Process.Kill() // it has nothing to save; an error means that it is gone already
	<-s.exited
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Flush removes all keys, so that what is measured next meets an empty server. Scripts stay loaded.
func (s *Server) Flush(ctx context.Context) error { return s.admin.FlushAll(ctx).Err() }
