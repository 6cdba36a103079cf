package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"
)

// readyTimeout bounds how long /readyz waits for Redis before it says no.
const readyTimeout = 2 * time.Second

// admin answers what an orchestrator asks: /healthz, 200 while the process
// lives, and /readyz, 200 while the worker can do jobs and 503 with the reason
// when it cannot.
type admin struct {
	server http.Server
	served chan error
}

// listenAdmin takes the address, so that a second worker on it ends before it has begun.
func listenAdmin(addr string) (net.Listener, error) {
	listener, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("admin address %s is in use, perhaps by another worker: give each its own with --admin-addr", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("admin address %s: %w", addr, err)
	}
	return listener, nil
}

// serveAdmin serves on the listener until the caller closes the admin.
func serveAdmin(listener net.Listener, ready func(context.Context) error) *admin {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
		defer cancel()
		if err := ready(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	a := &admin{
		server: http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second},
		served: make(chan error, 1),
	}
	go func() { a.served <- a.server.Serve(listener) }()
	return a
}

// close ends all connections and waits for the server to be gone.
func (a *admin) close() error {
	err := a.server.Close()
	if serveErr := <-a.served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, serveErr)
	}
	return err
}
