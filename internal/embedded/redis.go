// Package embedded runs a Redis inside the process, to try things out on a machine that has
// none. Nothing is kept when it closes.
package embedded

import (
	"fmt"

	"github.com/alicebob/miniredis/v2"
)

// Redis is an in-memory server on a loopback port.
type Redis struct {
	server *miniredis.Miniredis
}

// Start listens on a free loopback port. Keys expire by the wall clock, as in
// a real server. The caller closes it.
func Start() (*Redis, error) {
	server := miniredis.NewMiniRedis()
	server.ClockTTL(true)
	if err := server.Start(); err != nil {
		return nil, fmt.Errorf("embedded redis: %w", err)
	}
	return &Redis{server: server}, nil
}

// Addr is the host:port that clients on this machine connect to.
func (r *Redis) Addr() string { return r.server.Addr() }

// Close drops every connection and key, and waits for the server's goroutines to end.
func (r *Redis) Close() { r.server.Close() }
