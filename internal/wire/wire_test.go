package wire

import (
	"bufio"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server answers every line with itself in capitals, and says which have arrived.
func server(t *testing.T) (addr string, arrived <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			for in := bufio.NewScanner(conn); in.Scan(); {
				lines <- in.Text()
				if _, err := conn.Write([]byte(strings.ToUpper(in.Text()) + "\n")); err != nil {
					break
				}
			}
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return listener.Addr().String(), lines
}

// client is a connection over a wire of its own.
type client struct {
	t       *testing.T
	wire    *Wire
	conn    net.Conn
	replies *bufio.Reader
	arrived <-chan string
}

func newClient(t *testing.T) *client {
	t.Helper()
	addr, arrived := server(t)
	w, err := New(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	c := &client{t: t, wire: w, arrived: arrived}
	c.dial()
	return c
}

func (c *client) dial() {
	c.t.Helper()
	conn, err := net.Dial("tcp", c.wire.Addr)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { conn.Close() })
	c.conn, c.replies = conn, bufio.NewReader(conn)
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := c.conn.Write([]byte(line + "\n")); err != nil {
		c.t.Fatal(err)
	}
}

// gets fails the test unless these are the next replies.
func (c *client) gets(want ...string) {
	c.t.Helper()
	for _, line := range want {
		if got, err := c.replies.ReadString('\n'); got != line+"\n" {
			c.t.Fatalf("got %q (%v), want %q", got, err, line)
		}
	}
}

// broken fails the test unless the connection ends without another reply.
func (c *client) broken() {
	c.t.Helper()
	if got, err := c.replies.ReadString('\n'); err == nil {
		c.t.Fatalf("got %q, want a broken connection", got)
	}
}

// loses returns when a reply is lost: it may still be on its way to the wire.
func (c *client) loses() {
	for lost := false; !lost; runtime.Gosched() {
		c.wire.mu.Lock()
		for l := range c.wire.links {
			lost = lost || l.lost
		}
		c.wire.mu.Unlock()
	}
}

func TestNoTrouble(t *testing.T) {
	c := newClient(t)
	c.send("a")
	c.gets("A")
	c.send("b")
	c.gets("B")
}

// TestLate: what is held or delayed arrives when the trouble is over, all of it, in order.
func TestLate(t *testing.T) {
	for name, trouble := range map[string]Trouble{"hold": {Hold: true}, "delay": {Delay: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			c.send("a")
			c.gets("A")
			c.wire.Set(trouble)
			c.send("b")
			c.send("c")
			if err := c.conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if got, err := c.replies.ReadString('\n'); err == nil {
				t.Fatalf("got %q meanwhile", got)
			}
			if err := c.conn.SetReadDeadline(time.Time{}); err != nil {
				t.Fatal(err)
			}
			c.wire.Set(Trouble{})
			c.gets("B", "C")
		})
	}
}

func TestDelayPasses(t *testing.T) {
	c := newClient(t)
	c.wire.Set(Trouble{Delay: time.Millisecond})
	c.send("a")
	c.gets("A")
}

// TestLostReplies: requests arrive, and the connections that lost a reply end.
func TestLostReplies(t *testing.T) {
	c := newClient(t)
	c.wire.Set(Trouble{LoseReplies: true})
	c.send("a")
	if got := <-c.arrived; got != "a" {
		t.Fatalf("%q arrived, want a", got)
	}
	c.send("b")
	if got := <-c.arrived; got != "b" {
		t.Fatalf("%q arrived, want b", got)
	}
	c.loses()
	c.wire.Set(Trouble{})
	c.broken()
	c.dial()
	c.send("c")
	c.gets("C")
}

func TestCut(t *testing.T) {
	c := newClient(t)
	c.send("a")
	c.gets("A")
	c.wire.Cut()
	c.broken()
	c.dial()
	c.send("b")
	c.gets("B")
}

// TestClose: whatever is under way ends, and nobody is listening any more.
func TestClose(t *testing.T) {
	c := newClient(t)
	c.wire.Set(Trouble{Hold: true})
	c.send("a")
	if err := c.wire.Close(); err != nil {
		t.Fatal(err)
	}
	c.broken()
	if conn, err := net.Dial("tcp", c.wire.Addr); err == nil {
		conn.Close()
		t.Error("it still listens")
	}
}

func TestServerGone(t *testing.T) {
	addr := func() string {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		return listener.Addr().String()
	}()
	w, err := New(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	conn, err := net.Dial("tcp", w.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("read %d bytes (%v), want an end", n, err)
	}
}
