package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var errNoPermit = errors.New("no permit")

// journal is an Acquirer that notes what happens, in order, together with what the test itself
// notes.
type journal struct {
	acquire func(ctx context.Context, nth int) error // nil: granted at once
	pause   func(ctx context.Context, d time.Duration) error

	mu       sync.Mutex
	events   []string
	acquired int
}

func (j *journal) note(event string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, event)
}

func (j *journal) Acquire(ctx context.Context, n int64) error {
	j.note(fmt.Sprintf("acquire %d", n))
	j.mu.Lock()
	j.acquired++
	nth := j.acquired
	j.mu.Unlock()
	if j.acquire == nil {
		return nil
	}
	return j.acquire(ctx, nth)
}

func (j *journal) Pause(ctx context.Context, d time.Duration) error {
	j.note("pause " + d.String())
	if j.pause == nil {
		return nil
	}
	return j.pause(ctx, d)
}

func (j *journal) expect(t *testing.T, want ...string) {
	t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	if !slices.Equal(j.events, want) {
		t.Errorf("events %q, want %q", j.events, want)
	}
}

// nthRefused refuses the nth permit.
func nthRefused(n int) func(context.Context, int) error {
	return func(_ context.Context, nth int) error {
		if nth == n {
			return errNoPermit
		}
		return nil
	}
}

// onceClosed is a request body that cannot be read again and counts how often it is closed.
type onceClosed struct {
	io.Reader
	closed atomic.Int32
}

func newBody(s string) *onceClosed { return &onceClosed{Reader: strings.NewReader(s)} }

func (b *onceClosed) Close() error {
	b.closed.Add(1)
	return nil
}

func (b *onceClosed) expectClosed(t *testing.T) {
	t.Helper()
	if n := b.closed.Load(); n != 1 {
		t.Errorf("body closed %d times, want once", n)
	}
}

// serve starts a server that speaks proto: http1, https1, http2 or h2c. It returns a
// transport of its own for it.
func serve(t *testing.T, proto string, h http.HandlerFunc) (string, *http.Transport) {
	t.Helper()
	return serveFor(t, proto, 0, h)
}

// serveFor starts a server that closes connections on which nothing has come for so long; never, if silent is 0.
func serveFor(t *testing.T, proto string, silent time.Duration, h http.HandlerFunc) (string, *http.Transport) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ReadHeaderTimeout, s.Config.IdleTimeout = silent, silent
	switch proto {
	case "http1":
		s.Start()
	case "https1":
		s.StartTLS()
	case "http2":
		s.EnableHTTP2 = true
		s.StartTLS()
	case "h2c":
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
	default:
		t.Fatalf("unknown protocol %q", proto)
	}
	t.Cleanup(s.Close)
	base := s.Client().Transport.(*http.Transport)
	if proto == "h2c" {
		base.Protocols = s.Config.Protocols
	}
	t.Cleanup(base.CloseIdleConnections)
	return s.URL, base
}

var protocols = []string{"http1", "https1", "http2", "h2c"}

func newRequest(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// get makes a request that must succeed and returns the body of the answer.
func get(t *testing.T, rt http.RoundTripper, req *http.Request) string {
	t.Helper()
	resp, err := rt.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
