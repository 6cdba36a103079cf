package httplimit

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/ahead"
)

const (
	// connects is how long before its permit is due a request gets its connection, if it has to wait for longer. Servers
	// close a connection on which nothing comes, the strictest after some seconds.
	connects = time.Second
	// checks is how long before its permit is due a request checks whether the server has closed the connection meanwhile.
	checks = 20 * time.Millisecond
)

// gate lets one RoundTrip's attempts through, each with a permit.
type gate struct {
	*transport
	ctx    context.Context
	cancel context.CancelCauseFunc
	died   atomic.Bool // the connection of the latest attempt was closed while it waited, so nothing of it was written

	mu       sync.Mutex        // a base may call gotConn from goroutines of its own
	paid     bool              // a permit was acquired that no attempt has used yet
	reserved ahead.Reservation // a permit is reserved that no attempt has taken yet; nil: none is
	waited   time.Duration     // for it, so far
	at       time.Time         // when the latest permit was acquired
	err      error             // why the gate is shut
}

// acquired is when the latest attempt got its permit.
func (g *gate) acquired() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.at
}

// gotConn is called when an attempt has its connection. base writes as soon as gotConn returns.
// So when it returns there is a permit, or base can no longer write to the server.
func (g *gate) gotConn(info httptrace.GotConnInfo) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.paid {
		g.paid = false
		return
	}
	if g.err == nil {
		g.err = g.acquire(info.Conn)
	}
	if g.err == nil {
		if !g.died.Load() {
			g.at = time.Now()
		}
		return
	}
	// The context ends first: if a connection fails before anything is written, an
	// *http.Transport tries the next one, unless its request is cancelled. HTTP/2 checks the
	// context just before it writes. HTTP/1 does not, and its writer races with the cancellation:
	// so the connection is closed.
	g.cancel(g.err)
	if info.Conn != nil && g.exclusive(info.Conn) {
		info.Conn.Close()
	}
}

// acquire gets the permit of an attempt. If its connection has been closed meanwhile, nothing can be written, and the permit
// stays reserved for the next attempt. The first check leaves that one the time to connect.
func (g *gate) acquire(conn net.Conn) error {
	g.died.Store(false)
	if g.reserve == nil {
		return g.acquirer.Acquire(g.ctx, 1)
	}
	for _, early := range []time.Duration{connects, checks} {
		if err := g.comeNear(early); err != nil {
			return err
		}
		if g.isClosed(conn) {
			g.died.Store(true)
			return nil
		}
	}
	g.waits.Store(g.waited > connects)
	reserved := g.reserved
	g.reserved = nil
	err := reserved.Wait(g.ctx)
	if err == nil && g.isClosed(conn) { // the limit was paused just now, for example
		g.died.Store(true)
		_ = reserved.Release(g.ctx, 1) // else it counts as used
	}
	return err
}

// comeNear waits until the permit that is reserved is due in early or less. It reserves one if none is.
func (g *gate) comeNear(early time.Duration) (err error) {
	began := time.Now()
	if g.reserved == nil {
		g.waited = 0
		if g.reserved, err = g.reserve(g.ctx); err != nil || g.reserved.Delay() > connects {
			g.waits.Store(true) // those who come now need no connection yet
		}
	}
	if err == nil {
		err = g.reserved.Near(g.ctx, early)
	}
	if err != nil {
		g.reserved = nil
	}
	if g.waited += time.Since(began); g.waited > connects {
		g.waits.Store(true)
	}
	return err
}

// getConn is called when an attempt begins to get its connection. HTTP/2 has locked all its connections meanwhile, so it
// does not wait for anything.
func (g *gate) getConn(string) { g.died.Store(false) }

// isClosed reports whether this side has closed the connection: an *http.Transport does so as soon as the server does. Then
// nobody can write to it, whoever shares it.
func (t *transport) isClosed(conn net.Conn) bool {
	inner := conn
	for {
		secured, ok := inner.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		inner = secured.NetConn()
	}
	if socket, ok := inner.(syscall.Conn); ok {
		raw, err := socket.SyscallConn()
		if err == nil {
			err = raw.Control(func(uintptr) {})
		}
		return errors.Is(err, net.ErrClosed)
	}
	switch { // the user's own type
	case conn == nil:
		return false
	case t.exclusive(conn):
		return errors.Is(conn.SetWriteDeadline(time.Time{}), net.ErrClosed)
	}
	return errors.Is(conn.SetReadDeadline(time.Time{}), net.ErrClosed) // HTTP/2 sets deadlines for its writes
}

// goesOn reports whether the latest attempt has failed for no other reason than that its connection was closed, so that
// nothing of it was written.
func (g *gate) goesOn() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	died := g.died.Swap(false)
	if died && g.err == nil {
		g.err = context.Cause(g.ctx) // nil while it has not ended
	}
	return died && g.err == nil
}

// renewed returns the request with its body from the beginning; nil if that cannot be had.
func renewed(req *http.Request) (*http.Request, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return req, nil
	}
	if req.GetBody == nil {
		return nil, nil
	}
	body, err := req.GetBody()
	if err != nil {
		return nil, err
	}
	again := *req
	again.Body = body
	return &again, nil
}

// giveBack gives the permit back that is reserved if no attempt has taken it.
func (g *gate) giveBack() {
	g.mu.Lock()
	reserved := g.reserved
	g.reserved = nil
	g.mu.Unlock()
	if reserved != nil {
		reserved.Cancel()
	}
}

// refused returns the error that shut the gate, nil if it is open.
func (g *gate) refused() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.err
}
