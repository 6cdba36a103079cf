package httplimit_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

func TestTransportPauses(t *testing.T) {
	for _, tc := range []struct {
		name   string
		status int
		header string // of Retry-After
		want   []string
	}{
		{"429", 429, "3", []string{"acquire 1", "pause 3s", "returned"}},
		{"503", 503, "3", []string{"acquire 1", "pause 3s", "returned"}},
		{"no header", 429, "", []string{"acquire 1", "returned"}},
		{"malformed", 429, "soon", []string{"acquire 1", "returned"}},
		{"zero", 429, "0", []string{"acquire 1", "returned"}},
		{"other status", 500, "3", []string{"acquire 1", "returned"}},
		{"a year", 429, "31536000", []string{"acquire 1", "pause 1h0m0s", "returned"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url, base := serve(t, "http1", func(w http.ResponseWriter, r *http.Request) {
				if tc.header != "" {
					w.Header().Set("Retry-After", tc.header)
				}
				w.WriteHeader(tc.status)
				io.WriteString(w, "why")
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			j := &journal{pause: func(ctx context.Context, _ time.Duration) error {
				cancel()
				if _, ok := ctx.Deadline(); ctx.Err() != nil || !ok {
					t.Errorf("the pause must outlive the request (%v), but not for ever (%t)", ctx.Err(), ok)
				}
				return errors.New("redis is away")
			}}
			resp, err := httplimit.Transport(base, j).RoundTrip(newRequest(t, "GET", url, nil).WithContext(ctx))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			j.note("returned")
			j.expect(t, tc.want...)
			if resp.StatusCode != tc.status {
				t.Errorf("status %d, want %d", resp.StatusCode, tc.status)
			}
		})
	}
}

func TestTransportRedirectsAcquire(t *testing.T) {
	url, base := serve(t, "http1", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/there", http.StatusFound)
		}
	})
	j := &journal{}
	client := http.Client{Transport: httplimit.Transport(base, j)}
	defer client.CloseIdleConnections()
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	j.expect(t, "acquire 1", "acquire 1")
}

// What callers may rely on in any RoundTripper.
func TestTransportIsTransparent(t *testing.T) {
	t.Run("request and trace of the caller", func(t *testing.T) {
		url, base := serve(t, "http1", func(http.ResponseWriter, *http.Request) {})
		j := &journal{}
		req := newRequest(t, "GET", url, nil)
		req = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
			GotConn: func(httptrace.GotConnInfo) { j.note("traced") },
		}))
		resp, err := httplimit.Transport(base, j).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.Request != req {
			t.Error("the response is not that of the caller's request")
		}
		j.expect(t, "acquire 1", "traced")
	})
	t.Run("context ends with the body", func(t *testing.T) {
		var ctx context.Context
		rt := httplimit.Transport(roundTripper(func(req *http.Request) (*http.Response, error) {
			ctx = req.Context()
			return &http.Response{StatusCode: 200, Body: newBody("x")}, nil
		}), &journal{})
		resp, err := rt.RoundTrip(newRequest(t, "GET", "http://example.com", nil))
		if err != nil {
			t.Fatal(err)
		}
		if ctx.Err() != nil {
			t.Error("context ended before the body")
		}
		resp.Body.Close()
		if ctx.Err() == nil {
			t.Error("context leaked")
		}
	})
	t.Run("no body", func(t *testing.T) {
		url, base := serve(t, "http1", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
		resp, err := httplimit.Transport(base, &journal{}).RoundTrip(newRequest(t, "GET", url, nil))
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body != http.NoBody {
			t.Errorf("body %T, want http.NoBody", resp.Body)
		}
	})
	t.Run("switching protocols", func(t *testing.T) {
		url, base := serve(t, "http1", func(w http.ResponseWriter, r *http.Request) {
			conn, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
			rw.Flush()
			all, _ := io.ReadAll(rw) // until the client has ended what it writes
			rw.Write(all)
			rw.Flush()
		})
		req := newRequest(t, "GET", url, nil)
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "echo")
		resp, err := httplimit.Transport(base, &journal{}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		w, ok := resp.Body.(interface {
			io.Writer
			CloseWrite() error
		})
		if !ok {
			t.Fatalf("body %T of a 101 response cannot be written, or not ended", resp.Body)
		}
		io.WriteString(w, "hello\n")
		if err := w.CloseWrite(); err != nil {
			t.Error(err)
		}
		if got, _ := io.ReadAll(resp.Body); string(got) != "hello\n" {
			t.Errorf("echo %q", got)
		}
	})
	t.Run("bad request", func(t *testing.T) {
		j := &journal{}
		body := newBody("x")
		if _, err := httplimit.Transport(nil, j).RoundTrip(&http.Request{Header: http.Header{}, Body: body}); err == nil {
			t.Error("a request without URL succeeded")
		}
		body.expectClosed(t)
	})
}
