package admin

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

const (
	// maxConnections is how many connections may be open: far more than browsers and scrapers
	// use.
	maxConnections = 128
	// maxOfClient is how many of them one client may have.
	maxOfClient = 64
)

// connections bounds the number of open connections. For each new one beyond the bounds,
// another is closed: one of the same client, if that has too many. It is the one that has been
// idle longest; if none is idle, the one that has been busy longest. The new one stays, so that
// a health check is answered even if all other connections are kept busy. Its track is a
// http.Server's ConnState.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]connection
	now  int64 // counts events
}

type connection struct {
	client netip.Prefix
	idle   bool  // between requests; a new connection is busy, although it has said nothing yet
	since  int64 // when it became idle, or busy
}

func newConnections() *connections { return &connections{open: map[net.Conn]connection{}} }

func (c *connections) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now++
	known, tracked := c.open[conn]
	switch {
	case state == http.StateNew:
		client := clientOf(conn.RemoteAddr())
		c.open[conn] = connection{client: client, since: c.now}
		c.makeRoom(client)
	case state != http.StateIdle && state != http.StateActive:
		delete(c.open, conn)
	case tracked && known.idle != (state == http.StateIdle): // an untracked one has been closed, and does not know it yet
		c.open[conn] = connection{client: known.client, idle: state == http.StateIdle, since: c.now}
	}
}

// makeRoom closes a connection if there is one too many, after the client has opened a new one.
func (c *connections) makeRoom(client netip.Prefix) {
	his := 0
	for _, o := range c.open {
		if o.client == client {
			his++
		}
	}
	if his <= maxOfClient && len(c.open) <= maxConnections {
		return
	}
	var first net.Conn
	for conn, o := range c.open {
		if his > maxOfClient && o.client != client {
			continue
		}
		if first == nil || o.goesBefore(c.open[first]) {
			first = conn
		}
	}
	delete(c.open, first)
	first.Close()
}

// goesBefore reports whether o is closed before p.
func (o connection) goesBefore(p connection) bool {
	if o.idle != p.idle {
		return o.idle
	}
	return o.since < p.since
}

// clientOf returns what the connections of one client have in common: the IPv4 address, or the
// first half of the IPv6 address, because every network has many IPv6 addresses.
func clientOf(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	prefix, _ := ip.Prefix(min(ip.BitLen(), 64)) // fails for no address
	return prefix
}
