package admin

import (
	"net"
	"net/http"
	"sync"
)

// maxConnections is how many connections may be open: far more than browsers
// and scrapers have.
const maxConnections = 128

// connections keeps the number of open connections within bounds. For each that
// comes beyond them, the one that has idled for longest goes; if none idles, the
// new one goes. Its track is a http.Server's ConnState.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]int64 // when it began to idle, in order; 0: it does not
	now  int64
}

func newConnections() *connections { return &connections{open: map[net.Conn]int64{}} }

func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	switch state {
	case http.StateNew, http.StateIdle: // a new one has said nothing yet
		c.open[conn] = c.now
	case http.StateActive:
		c.open[conn] = 0
	default:
		delete(c.open, conn)
	}
	if len(c.open) > maxConnections {
		if longest := c.longestIdle(); longest != nil {
			delete(c.open, longest)
			longest.Close()
		}
	}
}

// longestIdle returns the connection that began to idle first; nil if none idles.
func (c *connections) longestIdle() (longest net.Conn) {
	var since int64
	for conn, at := range c.open {
		if at > 0 && (longest == nil || at < since) {
			longest, since = conn, at
		}
	}
	return longest
}
