package admin_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/worker/admin"
)

// dialFrom opens a connection to the site from an address of this machine.
func (s *site) dialFrom(ip string) net.Conn {
	s.tb.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	conn, err := dialer.DialContext(s.tb.Context(), "tcp", s.addr)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(func() { conn.Close() })
	return conn
}

// get asks on the connection, which stays open.
func get(conn net.Conn, path string) error {
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return nil
}

// keepBusy begins a request whose end never comes.
func keepBusy(conn net.Conn) {
	fmt.Fprint(conn, "POST /api/limits/api/pause HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer guess\r\nContent-Length: 100\r\n\r\n{")
}

// TestHealthAmongBusyConnections: connections that are all busy, from one address
// or from many, keep nobody from the health checks.
func TestHealthAmongBusyConnections(t *testing.T) {
	for _, addresses := range []int{1, 50} {
		t.Run(fmt.Sprintf("from %d addresses", addresses), func(t *testing.T) {
			s := newSite(t, 1, twoLimits, token)
			for i := range 3 * admin.MaxConnections {
				keepBusy(s.dialFrom(fmt.Sprintf("127.0.0.%d", 2+i%addresses)))
				if i%16 != 0 {
					continue
				}
				for _, path := range []string{"/healthz", "/readyz"} {
					if err := get(s.dialFrom("127.0.0.1"), path); err != nil {
						t.Fatalf("after %d busy connections: %s: %v", i+1, path, err)
					}
				}
			}
		})
	}
}

// TestConnectionsOfOneAddress: however many somebody opens, another's stay, and
// his own do not grow beyond his share.
func TestConnectionsOfOneAddress(t *testing.T) {
	s := newSite(t, 1, twoLimits, token)
	operator := s.dialFrom("127.0.0.1")
	if err := get(operator, "/healthz"); err != nil {
		t.Fatal(err)
	}
	var his []net.Conn
	for i := range 3 * admin.MaxConnections {
		conn := s.dialFrom("127.0.0.2")
		if his = append(his, conn); i%2 == 0 {
			keepBusy(conn)
		}
	}
	if err := get(operator, "/healthz"); err != nil {
		t.Errorf("a connection of another that idled: %v", err)
	}
	for _, conn := range his[:len(his)-admin.MaxOfClient] { // all but the latest are closed, in whatever state
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, conn); err != nil {
			if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
				t.Fatal("a connection beyond its address's share is open")
			}
		}
	}
	if err := get(his[len(his)-1], "/healthz"); err != nil { // one that says nothing yet
		t.Errorf("the latest: %v", err)
	}
}
