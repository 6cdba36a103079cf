package admin

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
)

const (
	// maxConnections is how many connections may be open: far more than browsers
	// and scrapers have.
	maxConnections = 128
	// maxOfClient is how many of them one client may have.
	maxOfClient = 64
)

// connections keeps the number of open connections within bounds. For each that
// comes beyond them, another goes: one of the same client, if it has too many. It
// is the one that has idled for longest; if none idles, the one that has been
// busy for longest. The new one stays, so that a health check is answered among
// connections that are all kept busy. Its track is a http.Server's ConnState.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]connection
	now  int64 // counts what happens
}

type connection struct {
	client netip.Prefix
	idle   bool  // between requests; a new one is busy, though it has said nothing yet
	since  int64 // when it began to idle, or to be busy
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
	case tracked && known.idle != (state == http.StateIdle): // an untracked one has been closed, and does not know yet
		c.open[conn] = connection{client: known.client, idle: state == http.StateIdle, since: c.now}
	}
}

// makeRoom closes a connection if there is one too many, now that the client has
// a new one.
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

// goesBefore reports whether o makes room rather than p.
func (o connection) goesBefore(p connection) bool {
	if o.idle != p.idle {
		return o.idle
	}
	return o.since < p.since
}

// clientOf returns what connections of one client have in common: the address, or
// its first half, as every network has many addresses of IPv6.
func clientOf(addr net.Addr) netip.Prefix {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	prefix, _ := ip.Prefix(min(ip.BitLen(), 64)) // fails for no address, which has none
	return prefix
}
