package httplimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

func TestTransportAcquiresBetweenConnectionAndRequest(t *testing.T) {
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			var j journal
			url, base := serve(t, proto, func(w http.ResponseWriter, r *http.Request) { j.note("arrived") })
			var dialer net.Dialer
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := dialer.DialContext(ctx, network, addr)
				j.note("dialled")
				return conn, err
			}
			rt := httplimit.Transport(base, &j)
			get(t, rt, newRequest(t, "GET", url, nil))
			j.expect(t, "dialled", "acquire 1", "arrived")
			get(t, rt, newRequest(t, "GET", url, nil)) // over the same connection, if net/http has it back by now
			j.mu.Lock()
			defer j.mu.Unlock()
			j.events = slices.DeleteFunc(j.events, func(event string) bool { return event == "dialled" })
			if want := []string{"acquire 1", "arrived", "acquire 1", "arrived"}; !slices.Equal(j.events, want) {
				t.Errorf("events %q, want %q", j.events, want)
			}
		})
	}
}

// A permit that is 150 ms old because of dialling would put two requests into a window that the
// limit meant for one.
func TestTransportPermitIsFreshAfterSlowDial(t *testing.T) {
	const dial = 150 * time.Millisecond
	var dialled, acquired time.Time
	j := &journal{acquire: func(context.Context, int) error { acquired = time.Now(); return nil }}
	url, base := serve(t, "http1", func(http.ResponseWriter, *http.Request) {})
	var dialer net.Dialer
	base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		<-time.After(dial)
		conn, err := dialer.DialContext(ctx, network, addr)
		dialled = time.Now()
		return conn, err
	}
	start := time.Now()
	get(t, httplimit.Transport(base, j), newRequest(t, "GET", url, nil))
	if took := dialled.Sub(start); took < dial || acquired.Before(dialled) {
		t.Errorf("the connection took %v, the permit was acquired %v later", took, acquired.Sub(dialled))
	}
}

func TestTransportRefusedWritesNothing(t *testing.T) {
	for _, proto := range protocols {
		for _, conn := range []string{"new", "idle"} {
			t.Run(proto+" "+conn, func(t *testing.T) {
				var arrived atomic.Int32
				url, base := serve(t, proto, func(http.ResponseWriter, *http.Request) { arrived.Add(1) })
				j := &journal{acquire: func(context.Context, int) error { return errNoPermit }}
				rt := httplimit.Transport(base, j)
				if conn == "idle" {
					get(t, base, newRequest(t, "GET", url, nil))
					arrived.Store(0)
				}
				for _, body := range []*onceClosed{nil, newBody("x"), newBody(strings.Repeat("x", 1<<20))} {
					req := newRequest(t, "POST", url, nil)
					if body != nil {
						req.Body, req.ContentLength = body, -1
					}
					resp, err := rt.RoundTrip(req)
					if err != errNoPermit || resp != nil {
						t.Fatalf("RoundTrip = %v, %v; want the error of Acquire", resp, err)
					}
					if body != nil {
						body.expectClosed(t)
					}
				}
				// The server has seen everything when it has answered one more request.
				get(t, base, newRequest(t, "GET", url, nil))
				if n := arrived.Load(); n != 1 {
					t.Errorf("%d requests arrived without a permit", n-1)
				}
			})
		}
	}
}

// Not one byte is written, where bytes can be counted.
func TestTransportRefusedWritesNoByte(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	base := &http.Transport{}
	rt := httplimit.Transport(base, &journal{acquire: nthRefused(1)})
	body := newBody("payload")
	req := newRequest(t, "POST", "http://"+l.Addr().String(), body)
	if _, err := rt.RoundTrip(req); !errors.Is(err, errNoPermit) {
		t.Fatalf("error %v", err)
	}
	conn, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got, _ := io.ReadAll(conn); len(got) > 0 {
		t.Errorf("received %q", got)
	}
	body.expectClosed(t)
}

func TestTransportRefusalSparesOtherStreams(t *testing.T) {
	for _, proto := range []string{"http2", "h2c"} {
		t.Run(proto, func(t *testing.T) {
			entered, leave := make(chan struct{}), make(chan struct{})
			var conns atomic.Int32
			url, base := serve(t, proto, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					close(entered)
					<-leave
				}
				fmt.Fprint(w, r.URL.Path)
			})
			var dialer net.Dialer
			base.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				conns.Add(1)
				return dialer.DialContext(ctx, network, addr)
			}
			// net/http shares a connection only some time after it has sent the first request on it.
			shared := false
			tells := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { shared = c.Reused }})
			for !shared {
				get(t, base, newRequest(t, "GET", url+"/before", nil).WithContext(tells))
			}
			conns.Store(0)
			rt := httplimit.Transport(base, &journal{acquire: nthRefused(2)})
			slow := make(chan string)
			go func() {
				defer close(slow)
				slow <- get(t, rt, newRequest(t, "GET", url+"/slow", nil))
			}()
			<-entered
			if _, err := rt.RoundTrip(newRequest(t, "GET", url+"/refused", nil)); err != errNoPermit {
				t.Errorf("error %v", err)
			}
			if got := get(t, rt, newRequest(t, "GET", url+"/third", nil)); got != "/third" {
				t.Errorf("third request: %q", got)
			}
			close(leave)
			if got := <-slow; got != "/slow" {
				t.Errorf("request under way: %q", got)
			}
			if n := conns.Load(); n != 0 {
				t.Errorf("%d new connections, want all streams on the one that there was", n)
			}
		})
	}
}

func TestTransportContextEndsWhileWaiting(t *testing.T) {
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			url, base := serve(t, proto, func(http.ResponseWriter, *http.Request) { t.Error("arrived") })
			ctx, cancel := context.WithCancel(t.Context())
			j := &journal{acquire: func(ctx context.Context, _ int) error {
				cancel()
				<-ctx.Done()
				return fmt.Errorf("gave up: %w", context.Cause(ctx))
			}}
			body := newBody("x")
			req := newRequest(t, "POST", url, body).WithContext(ctx)
			_, err := httplimit.Transport(base, j).RoundTrip(req)
			if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "gave up") {
				t.Errorf("error %v, want that of Acquire", err)
			}
			body.expectClosed(t)
		})
	}
}

func TestTransportBodyArrivesOnce(t *testing.T) {
	payload := strings.Repeat("0123456789abcdef", 1<<14)
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			url, base := serve(t, proto, func(w http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				w.Write(b)
			})
			rt := httplimit.Transport(base, &journal{})
			body := newBody(payload)
			if got := get(t, rt, newRequest(t, "POST", url, body)); got != payload {
				t.Errorf("echo of %d bytes, want %d", len(got), len(payload))
			}
			body.expectClosed(t)
		})
	}
}
