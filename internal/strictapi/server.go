package strictapi

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Server serves an API on a loopback port.
type Server struct {
	*API
	listener net.Listener
	http     http.Server
	served   chan error
}

// Start listens on a free loopback port. The caller closes it.
func Start(limit int, interval time.Duration) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("strict api: %w", err)
	}
	api := New(limit, interval)
	s := &Server{
		API:      api,
		listener: listener,
		http:     http.Server{Handler: api, ReadHeaderTimeout: time.Minute},
		served:   make(chan error, 1),
	}
	go func() { s.served <- s.http.Serve(listener) }()
	return s, nil
}

// Addr is the server's host:port.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends all connections and waits until the server has ended.
func (s *Server) Close() error {
	err := s.http.Close()
	if serveErr := <-s.served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}
