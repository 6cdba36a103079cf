// Package admin serves what operators use while a worker, or an asynq server with limits, runs:
// health checks, metrics for Prometheus, and a page that shows every limit and changes it.
package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/internal/zaplog"
)

// Options of a [Server] or [Handler].
type Options struct {
	// Token is what changes need, as "Authorization: Bearer TOKEN". Without a token the server
	// is read-only.
	Token string
	// Hosts are names, without ports, under which the address shows jobs without the token.
	// They are needed for names that others can register, such as ops.example.com. Addresses,
	// and names without a dot, need not be listed.
	Hosts []string
	// Logger logs every change, wrong tokens, at most once a second, and an address that
	// everybody can read. Defaults to none.
	Logger *zap.Logger
	// Hide are names of fields and headers that hold secrets, in addition to those that the
	// page always hides: see docs/operating.md.
	Hide []string
	// Slog is used instead of Logger if it is set.
	Slog *slog.Logger
}

// logger returns the logger that is set.
func (o Options) logger() *slog.Logger {
	return cmp.Or(o.Slog, zaplog.New(o.Logger), slog.New(slog.DiscardHandler))
}

// Server is an address that serves a [Handler]. [Serve] starts it.
type Server struct {
	http   http.Server
	served chan error

	sampling sync.WaitGroup
	stop     context.CancelFunc

	closeOnce func() error
}

// writeTimeout is longer than anything here takes, even without Redis and with everything that
// has to wait.
const writeTimeout = 15 * time.Second

// Listen listens on the address, for [Serve]. Call it early, so that a second worker with the
// same address fails before it starts.
func Listen(addr string) (net.Listener, error) {
	listener, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("admin address %s is in use, perhaps by another worker: give each its own with --admin-addr", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("admin address %s: %w", addr, err)
	}
	return listener, nil
}

// Serve serves source, a *worker.Worker, on the listener until the caller closes the [Server].
func Serve(listener net.Listener, source Source, opts Options) *Server {
	if opts.Token == "" && onEvery(listener.Addr()) {
		opts.logger().Warn("anybody who reaches this machine can read the admin address: serve 127.0.0.1, or an address of an internal network",
			"admin", listener.Addr().String())
	}
	handler := newHandler(source, opts, cameByLoopback)
	s := &Server{
		http: http.Server{
			Handler:           handler,
			ReadHeaderTimeout: 5 * time.Second,
			ReadTimeout:       10 * time.Second,
			WriteTimeout:      writeTimeout,
			ConnState:         newConnections().track,
			IdleTimeout:       time.Minute,
			MaxHeaderBytes:    16 << 10,
		},
		served: make(chan error, 1),
	}
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.closeOnce = sync.OnceValue(s.close)
	s.sampling.Go(func() { handler.Run(ctx) })
	go func() { s.served <- s.http.Serve(listener) }()
	return s
}

// Close ends all connections and waits until all goroutines of the server have ended. Closing
// twice is harmless.
func (s *Server) Close() error { return s.closeOnce() }

func (s *Server) close() error {
	s.stop()
	err := s.http.Close()
	if serveErr := <-s.served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	s.sampling.Wait()
	return err
}
