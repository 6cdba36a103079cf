// Package admin serves what operators look at and use while a worker runs:
// health checks, metrics for Prometheus, and a page that shows every limit and
// changes it.
package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/worker"
)

// Options of a Server.
type Options struct {
	// Token is what changes need, as "Authorization: Bearer TOKEN". Without one
	// the server only reads.
	Token string
	// Logger is told of every change, of wrong tokens, once a second at most, and
	// of an address that everybody can read. Defaults to none.
	Logger *zap.Logger
}

// Server serves a worker's admin address:
//
//	/healthz   200 while the process lives
//	/readyz    200 while the worker can do jobs, 503 with the reason when it cannot
//	/metrics   for Prometheus: see package metrics
//	/          the page, which uses /api/
//
// Reading needs no token: do not serve the address where strangers can reach
// it. Pages of other sites read nothing, as browsers tell who asks. On a loopback address requests must name localhost or a loopback address
// as their host, except for the health checks, so that no web page of another
// site can read it through a name of its own.
type Server struct {
	http   http.Server
	served chan error

	sampling sync.WaitGroup
	stop     context.CancelFunc

	closeOnce func() error
}

// writeTimeout is longer than anything here takes, with Redis away and all that
// has to wait.
const writeTimeout = 15 * time.Second

// Listen takes the address, so that a second worker on it ends before it has begun.
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

// Serve serves w on the listener until the caller closes the Server.
func Serve(listener net.Listener, w *worker.Worker, opts Options) *Server {
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	if opts.Token == "" && onEvery(listener.Addr()) {
		opts.Logger.Warn("anybody who reaches this machine can read the admin address: serve 127.0.0.1, or an address of an internal network",
			zap.String("admin", listener.Addr().String()))
	}
	sampler := newSampler(w)
	s := &Server{
		http: http.Server{
			Handler:           newHandler(w, sampler, opts, onLoopback(listener.Addr())),
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
	s.sampling.Go(func() { sampler.run(ctx) })
	go func() { s.served <- s.http.Serve(listener) }()
	return s
}

// Close ends all connections and waits for everything of the server to be gone.
// Closing twice is harmless.
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
