package wire

import (
	"net"
	"sync"
	"time"
)

// backlog is how many pieces may be on the way: more than a client sends before it waits for a
// reply.
const backlog = 1024

// link is a connection of a client and the connection to the server that belongs to it.
type link struct {
	wire           *Wire
	client, server net.Conn
	lost           bool // a reply is lost for good; guarded by wire.mu

	once sync.Once
	done chan struct{} // closed by close
}

// piece is some bytes on the way.
type piece struct {
	data []byte
	at   time.Time // when they were sent
}

// run passes bytes on, in both directions, until the link is closed.
func (l *link) run() {
	var wg sync.WaitGroup
	requests, replies := make(chan piece, backlog), make(chan piece, backlog)
	wg.Go(func() { l.read(l.client, requests) })
	wg.Go(func() { l.read(l.server, replies) })
	wg.Go(func() { l.write(l.server, requests, l.mayRequest) })
	wg.Go(func() { l.write(l.client, replies, l.mayReply) })
	wg.Wait()
}

// close ends the link as a broken network would: whoever still sends gets a reset.
func (l *link) close() {
	l.once.Do(func() {
		for _, conn := range []net.Conn{l.client, l.server} {
			if tcp, ok := conn.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = conn.Close()
		}
		close(l.done)
	})
}

// read takes what is sent. When the sender ends, what is on the way still arrives.
func (l *link) read(from net.Conn, to chan<- piece) {
	defer close(to)
	for {
		buf := make([]byte, 16<<10)
		n, err := from.Read(buf)
		if n > 0 {
			select {
			case to <- piece{buf[:n], time.Now()}:
			case <-l.done:
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *link) write(to net.Conn, from <-chan piece, may func(piece) bool) {
	defer l.close()
	for p := range from {
		if !may(p) {
			continue
		}
		if _, err := to.Write(p.data); err != nil {
			return
		}
	}
}

// mayRequest returns true when the piece may go on to the server, and false if the link is
// closed before.
func (l *link) mayRequest(p piece) bool {
	for {
		t, changed := l.wire.state()
		wait := t.Delay - time.Since(p.at)
		if !t.Hold && wait <= 0 {
			return true
		}
		if t.Hold {
			wait = time.Hour
		}
		due := time.NewTimer(wait)
		select {
		case <-due.C:
		case <-changed:
		case <-l.done:
			due.Stop()
			return false
		}
		due.Stop()
	}
}

// mayReply returns true when the piece may go on to the client. It returns false if the piece
// is lost; then everything after it is lost too.
func (l *link) mayReply(piece) bool {
	for {
		t, lost, changed := l.wire.replyState(l)
		switch {
		case lost:
			return false
		case !t.Hold:
			return true
		}
		select {
		case <-changed:
		case <-l.done:
			return false
		}
	}
}
