package httplimit_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

// TestWaitsLongerThanTheServer: permits are due later than the server keeps a silent connection. The requests arrive all the
// same, whole, whatever their method is, over a new connection and over one that was used before; none takes more than one
// permit.
func TestWaitsLongerThanTheServer(t *testing.T) {
	for _, tt := range []struct {
		name, proto    string
		silent, paused time.Duration
	}{
		{"http1", "http1", 1500 * time.Millisecond, 3 * time.Second},
		{"http1, group", "http1", 1500 * time.Millisecond, 3 * time.Second},
		{"https1", "https1", 1500 * time.Millisecond, 3 * time.Second},
		{"http2", "http2", 2 * time.Second, 4500 * time.Millisecond}, // Go's server needs another second to close a connection
		{"h2c", "h2c", 2 * time.Second, 4500 * time.Millisecond},
		{"http2 over the user's own connections", "http2", 2 * time.Second, 4500 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			_, client, limiter := limited(t, throttle.Rate{Permits: 100, Interval: time.Minute})
			var limit httplimit.Acquirer = limiter
			if strings.Contains(tt.name, "group") {
				group, err := client.Group(limiter)
				if err != nil {
					t.Fatal(err)
				}
				limit = group
			}
			var mu sync.Mutex
			var arrived []string
			url, used := serveFor(t, tt.proto, tt.silent, func(_ http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				arrived = append(arrived, r.Method+" "+string(body))
				if err != nil {
					t.Error(err)
				}
			})
			if strings.Contains(tt.name, "own") {
				var dialer net.Dialer
				used.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					conn, err := dialer.DialContext(ctx, network, addr)
					return struct{ net.Conn }{conn}, err
				}
			}
			fresh := used.Clone()
			fresh.DisableKeepAlives = true
			t.Cleanup(fresh.CloseIdleConnections)
			limited := func(base http.RoundTripper) *http.Client {
				return &http.Client{Transport: httplimit.Transport(base, limit), Timeout: 20 * time.Second}
			}
			others := limited(fresh)
			want := []string{"GET ", "PUT ", "POST again", "POST again", "POST once"}
			for i, send := range []func() (*http.Response, error){
				func() (*http.Response, error) { return limited(used).Get(url) }, // over a new connection
				nil,
				func() (*http.Response, error) { return limited(used).Post(url, "", strings.NewReader("again")) }, // over one that was used
				func() (*http.Response, error) { return others.Post(url, "", strings.NewReader("again")) },
				func() (*http.Response, error) { // its body can be read once, and the transport knows that requests wait for long
					return others.Post(url, "", io.NopCloser(strings.NewReader("once")))
				},
			} {
				if send == nil {
					get(t, used, newRequest(t, "PUT", url, nil))
					continue
				}
				if err := limiter.Pause(t.Context(), tt.paused); err != nil {
					t.Fatal(err)
				}
				resp, err := send()
				if err != nil {
					t.Errorf("%s: %v", want[i], err)
					continue
				}
				resp.Body.Close()
			}
			left, err := limiter.AvailablePermits(t.Context())
			if err != nil || left != 100-4 {
				t.Errorf("%d of 100 permits are left, want 96; %v", left, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(arrived, want) {
				t.Errorf("arrived: %q, want %q", arrived, want)
			}
		})
	}
}

// TestNoConnectionGivesBack: a request that gets no connection gives back the permit that it has reserved.
func TestNoConnectionGivesBack(t *testing.T) {
	_, _, limiter := limited(t, throttle.Rate{Permits: 10, Interval: time.Minute})
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(api.Close)
	refused := errors.New("no route to host")
	var refuses atomic.Bool
	var dialer net.Dialer
	users := http.Client{Transport: httplimit.Transport(&http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if refuses.Load() {
			return nil, refused
		}
		return dialer.DialContext(ctx, network, addr)
	}}, limiter), Timeout: 20 * time.Second}
	if err := limiter.Pause(t.Context(), 1200*time.Millisecond); err != nil { // requests wait for long: they reserve first
		t.Fatal(err)
	}
	resp, err := users.Get(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	refuses.Store(true)
	for range 20 {
		if _, err := users.Get(api.URL); !errors.Is(err, refused) {
			t.Fatal(err)
		}
	}
	if left, err := limiter.AvailablePermits(t.Context()); err != nil || left != 10-1 {
		t.Errorf("%d of 10 permits are left, %v; one was used", left, err)
	}
}

type answer struct{ resp *http.Response }

func (a answer) RoundTrip(*http.Request) (*http.Response, error) { return a.resp, nil }

// TestNoBody: http.Client makes do with a response without a body, and makes an error of no response.
func TestNoBody(t *testing.T) {
	resp, err := (&http.Client{Transport: httplimit.Transport(answer{&http.Response{StatusCode: 200}}, &journal{})}).Get("http://api.example/")
	if err != nil {
		t.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if _, err := (&http.Client{Transport: httplimit.Transport(answer{}, &journal{})}).Get("http://api.example/"); err == nil {
		t.Error("no error without a response")
	}
}

// weighted is a limit that somebody has wrapped: each request costs more.
type weighted struct{ *throttle.Limiter }

func (w weighted) Acquire(ctx context.Context, n int64) error { return w.Limiter.Acquire(ctx, 3*n) }

// TestWrappedLimit: what embeds a limiter and has an Acquire of its own is asked by that.
func TestWrappedLimit(t *testing.T) {
	_, _, limiter := limited(t, throttle.Rate{Permits: 10, Interval: time.Minute})
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(api.Close)
	resp, err := (&http.Client{Transport: httplimit.Transport(&http.Transport{DisableKeepAlives: true}, weighted{limiter})}).Get(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if left, err := limiter.AvailablePermits(t.Context()); err != nil || left != 10-3 {
		t.Errorf("%d of 10 permits are left, %v; 3 were used", left, err)
	}
}

// TestServerIsGone: the server closes the connection of a request that waits, and then is gone. The request ends with the
// error of dialling, soon, and is not sent again and again.
func TestServerIsGone(t *testing.T) {
	_, _, limiter := limited(t, throttle.Rate{Permits: 10, Interval: time.Minute})
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(api.Close)
	var dials atomic.Int64
	var dialer net.Dialer
	users := http.Client{Transport: httplimit.Transport(&http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dials.Add(1) == 1 {
			time.AfterFunc(100*time.Millisecond, api.Close)
		}
		return dialer.DialContext(ctx, network, addr)
	}}, limiter)}
	if err := limiter.Pause(t.Context(), 2*time.Second); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, "GET", api.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := users.Do(req); !errors.Is(err, syscall.ECONNREFUSED) || dials.Load() != 2 {
		t.Errorf("%v after %d dials, want the second to be refused", err, dials.Load())
	}
	if err := limiter.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, err := limiter.AvailablePermits(t.Context()); err != nil || left != 10 {
		t.Errorf("%d of 10 permits are left, %v", left, err)
	}
}

// TestConnectionsAreReplacedInTime: the server closes the connections of all who wait, and it takes time to connect again.
// All permits of the limit are used when they are due.
func TestConnectionsAreReplacedInTime(t *testing.T) {
	_, _, limiter := limited(t, throttle.Rate{Permits: 5, Interval: time.Minute})
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	api.Config.ReadHeaderTimeout, api.Config.IdleTimeout = time.Second, time.Second
	api.Start()
	t.Cleanup(api.Close)
	var dialer net.Dialer
	users := http.Client{Timeout: 20 * time.Second, Transport: httplimit.Transport(&http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		<-time.After(300 * time.Millisecond)
		return dialer.DialContext(ctx, network, addr)
	}}, limiter)}
	if err := limiter.Pause(t.Context(), 3*time.Second); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 5 {
		wg.Go(func() {
			resp, err := users.Get(api.URL)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		})
	}
	wg.Wait()
}

// TestNoConnectionsDuringAPause: while a limit is paused for long, requests wait without a connection, and those that cannot
// wait so long open none.
func TestNoConnectionsDuringAPause(t *testing.T) {
	for name, shares := range map[string]bool{"of the API": false, "of another process": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, limiter := limited(t, throttle.Rate{Permits: 1000, Interval: time.Second})
			var opened, requests atomic.Int64
			api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if requests.Add(1) == 1 && !shares {
					w.Header().Set("Retry-After", "600")
					w.WriteHeader(http.StatusTooManyRequests)
				}
			}))
			api.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				if state == http.StateNew {
					opened.Add(1)
				}
			}
			api.Start()
			defer api.Close()
			base := &http.Transport{}
			defer base.CloseIdleConnections()
			client := http.Client{Transport: httplimit.Transport(base, limiter), Timeout: 5 * time.Second}
			ask := func() error {
				resp, err := client.Get(api.URL)
				if err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				return err
			}
			if err := ask(); err != nil {
				t.Fatal(err)
			}
			if shares { // then the first that comes finds out
				if err := limiter.Pause(t.Context(), 10*time.Minute); err != nil {
					t.Fatal(err)
				}
				if err := ask(); !errors.Is(err, throttle.ErrExceedsDeadline) {
					t.Fatalf("during the pause: %v", err)
				}
			}
			before := opened.Load()
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					if err := ask(); !errors.Is(err, throttle.ErrExceedsDeadline) {
						t.Errorf("during the pause: %v", err)
					}
				})
			}
			wg.Wait()
			if n := opened.Load() - before; n > 0 {
				t.Errorf("%d connections were opened for requests that cannot be sent", n)
			}
		})
	}
}
