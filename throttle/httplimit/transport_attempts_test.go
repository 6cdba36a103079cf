package httplimit_test

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"testing"

	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

// staleServer answers the first request of the first connection and hangs up on
// the second, as servers do whose idle timeout is shorter than the client's;
// then it answers on the next connection. It records the bodies it read.
type staleServer struct {
	url    string
	mu     sync.Mutex
	bodies []string
}

func newStaleServer(t *testing.T) *staleServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &staleServer{url: "http://" + l.Addr().String()}
	var done sync.WaitGroup
	done.Go(func() {
		for hangUp := true; ; hangUp = false {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			done.Go(func() { s.talk(conn, hangUp) })
		}
	})
	t.Cleanup(done.Wait)
	t.Cleanup(func() { l.Close() })
	return s
}

func (s *staleServer) talk(conn net.Conn, hangUp bool) {
	defer conn.Close()
	br := bufio.NewReader(conn)
	for nth := 1; ; nth++ {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		body, _ := io.ReadAll(req.Body)
		s.mu.Lock()
		s.bodies = append(s.bodies, string(body))
		s.mu.Unlock()
		if hangUp && nth == 2 {
			return
		}
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	}
}

func (s *staleServer) expectBodies(t *testing.T, want ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.bodies, want) {
		t.Errorf("server read bodies %q, want %q", s.bodies, want)
	}
}

// replayable is a request that net/http sends again on a stale connection.
func replayable(t *testing.T, url string) *http.Request {
	req := newRequest(t, "POST", url, bytes.NewReader([]byte("again")))
	req.Header.Set("Idempotency-Key", "k")
	return req
}

func TestTransportAcquiresForEachAttempt(t *testing.T) {
	s := newStaleServer(t)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	j := &journal{}
	rt := httplimit.Transport(base, j)
	get(t, rt, newRequest(t, "GET", s.url, nil))
	if got := get(t, rt, replayable(t, s.url)); got != "ok" {
		t.Errorf("answer %q", got)
	}
	s.expectBodies(t, "", "again", "again")
	j.expect(t, "acquire 1", "acquire 1", "acquire 1")
}

func TestTransportRefusesSecondAttempt(t *testing.T) {
	s := newStaleServer(t)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	rt := httplimit.Transport(base, &journal{acquire: nthRefused(3)})
	get(t, rt, newRequest(t, "GET", s.url, nil))
	if _, err := rt.RoundTrip(replayable(t, s.url)); err != errNoPermit {
		t.Errorf("error %v, want the error of Acquire", err)
	}
	s.expectBodies(t, "", "again")
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// With a base that it does not know, Transport cannot tell whether that announces its
// connections.
func TestTransportUnknownBase(t *testing.T) {
	t.Run("silent", func(t *testing.T) {
		j := &journal{}
		rt := httplimit.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
			j.note("sent")
			return &http.Response{StatusCode: 200, Body: http.NoBody}, nil
		}), j)
		get(t, rt, newRequest(t, "GET", "http://example.com", nil))
		j.expect(t, "acquire 1", "sent")
	})
	t.Run("refused", func(t *testing.T) {
		rt := httplimit.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
			t.Error("called without a permit")
			return nil, io.EOF
		}), &journal{acquire: nthRefused(1)})
		body := newBody("x")
		if _, err := rt.RoundTrip(newRequest(t, "POST", "http://example.com", body)); err != errNoPermit {
			t.Errorf("error %v", err)
		}
		body.expectClosed(t)
	})
	t.Run("around http.Transport", func(t *testing.T) {
		s := newStaleServer(t)
		base := &http.Transport{}
		defer base.CloseIdleConnections()
		j := &journal{}
		rt := httplimit.Transport(roundTripper(base.RoundTrip), j)
		get(t, rt, newRequest(t, "GET", s.url, nil))
		get(t, rt, replayable(t, s.url))
		if j.acquired != 3 {
			t.Errorf("%d permits for 3 requests written", j.acquired)
		}
	})
	t.Run("around http.Transport, second attempt refused", func(t *testing.T) {
		s := newStaleServer(t)
		base := &http.Transport{}
		defer base.CloseIdleConnections()
		rt := httplimit.Transport(roundTripper(base.RoundTrip), &journal{acquire: nthRefused(3)})
		get(t, rt, newRequest(t, "GET", s.url, nil))
		if _, err := rt.RoundTrip(replayable(t, s.url)); err != errNoPermit {
			t.Errorf("error %v", err)
		}
		s.expectBodies(t, "", "again")
	})
	t.Run("deaf to its context", func(t *testing.T) {
		answer := newBody("")
		rt := httplimit.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
			trace := httptrace.ContextClientTrace(req.Context())
			trace.GotConn(httptrace.GotConnInfo{})
			trace.GotConn(httptrace.GotConnInfo{})
			return &http.Response{StatusCode: 200, Body: answer}, nil
		}), &journal{acquire: nthRefused(2)})
		if resp, err := rt.RoundTrip(newRequest(t, "GET", "http://example.com", nil)); err != errNoPermit || resp != nil {
			t.Errorf("RoundTrip = %v, %v", resp, err)
		}
		answer.expectClosed(t)
	})
}
