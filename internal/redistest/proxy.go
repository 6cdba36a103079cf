package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy is a way to a server that can go wrong. Its methods may be called concurrently.
type Proxy struct {
	Addr string // host:port on loopback

	target   string
	listener net.Listener
	wg       sync.WaitGroup // the one who accepts, and two for each connection

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{} // both ends of all that is connected
	losing int                   // replies that are yet to be lost
	delay  time.Duration
}

// NewProxy forwards connections to target for the length of the test.
func NewProxy(tb testing.TB, target string) *Proxy {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{Addr: l.Addr().String(), target: target, listener: l, conns: make(map[net.Conn]struct{})}
	p.wg.Go(p.accept)
	tb.Cleanup(p.close)
	return p
}

// Cut ends all connections at once. What was on its way may have arrived or not.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		conn.Close()
	}
}

// LoseReplies swallows what the server says next, n times: each time the connection ends instead. The server has done
// what it was asked.
func (p *Proxy) LoseReplies(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losing = n
}

// Delay holds back all that is sent from now on for d, in both directions.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.listener.Close()
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close() // the server is down, and so is the way to it
			continue
		}
		if !p.join(client, server) {
			return
		}
	}
}

// join forwards both ways until either end closes. It reports false when the proxy has ended.
func (p *Proxy) join(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		client.Close()
		server.Close()
		return false
	}
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.wg.Go(func() { p.forward(server, client, func() bool { return false }) })
	p.wg.Go(func() { p.forward(client, server, p.losesReply) })
	return true
}

// forward passes on what src says, until lost says that it is not to arrive.
func (p *Proxy) forward(dst, src net.Conn, lost func() bool) {
	defer func() {
		dst.Close()
		src.Close()
		p.mu.Lock()
		delete(p.conns, src)
		p.mu.Unlock()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			if lost() {
				return
			}
			p.wait()
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return // io.EOF included: nobody here speaks on a half-closed connection
		}
	}
}

func (p *Proxy) losesReply() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.losing == 0 {
		return false
	}
	p.losing--
	return true
}

// wait lets the delay pass that is set now.
func (p *Proxy) wait() {
	p.mu.Lock()
	d := p.delay
	p.mu.Unlock()
	if d > 0 {
		<-time.After(d)
	}
}
