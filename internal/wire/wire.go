// Package wire is a network that can be broken: a proxy between a client and a
// server on loopback.
//
// TCP repeats what a network loses. So bytes never vanish out of the middle of a connection
// here: they come late, or the connection ends without them.
package wire

import (
	"errors"
	"net"
	"sync"
	"time"
)

// Trouble is what is wrong with the wire. The zero value means nothing is.
type Trouble struct {
	// Delay is how much longer everything takes to the server. The way back is not delayed.
	Delay time.Duration
	// Hold lets nothing through, in either direction, and closes nothing. When it ends, what
	// was sent meanwhile arrives.
	Hold bool
	// LoseReplies lets through what goes to the server, but nothing that comes back. When it
	// ends, the connections that have lost something break.
	LoseReplies bool
}

// Wire passes connections on to a server. It is safe for concurrent use.
type Wire struct {
	// Addr is where it listens.
	Addr string

	server   string
	listener net.Listener
	wg       sync.WaitGroup // all goroutines

	mu      sync.Mutex
	closed  bool
	trouble Trouble
	changed chan struct{} // closed when trouble changes
	links   map[*link]struct{}
}

// New returns a wire to the server. The caller closes it.
func New(server string) (*Wire, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	w := &Wire{
		Addr:     listener.Addr().String(),
		server:   server,
		listener: listener,
		changed:  make(chan struct{}),
		links:    make(map[*link]struct{}),
	}
	w.wg.Go(w.accept)
	return w, nil
}

// Set replaces what is wrong with the wire, for old and new connections.
func (w *Wire) Set(t Trouble) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.trouble.LoseReplies && !t.LoseReplies {
		for l := range w.links {
			if l.lost {
				l.close()
			}
		}
	}
	w.trouble = t
	close(w.changed)
	w.changed = make(chan struct{})
}

// Cut breaks all connections. New ones are accepted.
func (w *Wire) Cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for l := range w.links {
		l.close()
	}
}

// Close breaks all connections, accepts no more, and waits until all goroutines have ended.
func (w *Wire) Close() error {
	err := w.listener.Close()
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.Cut()
	w.wg.Wait()
	return err
}

// state returns what is wrong, and a channel that is closed when that changes.
func (w *Wire) state() (Trouble, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trouble, w.changed
}

// replyState is like state, for a reply over l, and also returns whether the reply is lost. It
// marks l as lost under the same lock, so that Set breaks every link that has lost something.
func (w *Wire) replyState(l *link) (Trouble, bool, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.lost = l.lost || w.trouble.LoseReplies
	return w.trouble, l.lost, w.changed
}

func (w *Wire) accept() {
	for {
		client, err := w.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		w.wg.Go(func() { w.connect(client) })
	}
}

// connect links a client to the server until either of them or Cut ends that.
func (w *Wire) connect(client net.Conn) {
	server, err := net.Dial("tcp", w.server)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{wire: w, client: client, server: server, done: make(chan struct{})}
	w.mu.Lock()
	if w.closed {
		l.close()
	}
	w.links[l] = struct{}{}
	w.mu.Unlock()
	l.run()
	w.mu.Lock()
	delete(w.links, l)
	w.mu.Unlock()
}
