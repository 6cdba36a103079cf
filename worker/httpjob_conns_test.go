package worker

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// firstDies passes connections on to a server. When the returned function is called, nothing passes
// through the first one any more, and nobody closes it. This happens when a firewall forgets a connection.
func firstDies(t *testing.T, server string) (addr string, die func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	var dead atomic.Bool
	running.Go(func() {
		for n := 0; ; n++ {
			client, err := l.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", server)
			if err != nil {
				t.Error(err)
				client.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				defer to.Close()
				buf := make([]byte, 16<<10)
				for {
					k, err := from.Read(buf)
					if n > 0 || !dead.Load() {
						_, _ = to.Write(buf[:k])
					}
					if err != nil {
						return
					}
				}
			}
			running.Go(func() { pass(to, client) })
			running.Go(func() { pass(client, to) })
		}
	})
	t.Cleanup(func() { l.Close(); running.Wait() })
	return l.Addr().String(), func() { dead.Store(true) }
}

// TestHTTPJobLeavesADeadConnection: an HTTP/2 connection dies without a word. One job fails because of
// that. The next one has a new connection.
func TestHTTPJobLeavesADeadConnection(t *testing.T) {
	t.Parallel()
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Errorf("the request came over %s", r.Proto)
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	api.EnableHTTP2 = true
	api.StartTLS()
	t.Cleanup(api.Close)
	addr, die := firstDies(t, api.Listener.Addr().String())
	cfg := config.Default()
	cfg.HTTP.AllowHosts = []string{addr}
	job := newTestHTTPJob(t, cfg)
	job.base.TLSClientConfig = api.Client().Transport.(*http.Transport).TLSClientConfig
	if h2 := job.base.HTTP2; h2 != nil { // all times are a tenth of the real ones
		h2.SendPingTimeout /= 10
		h2.PingTimeout /= 10
	}
	job.timeout = 3 * time.Second
	send := func() error { return perform(t, job, HTTPRequest{URL: "https://" + addr}) }
	answered := func(err error) bool { _, ok := errors.AsType[*HTTPStatusError](err); return ok }
	if err := send(); !answered(err) {
		t.Fatal(err)
	}
	die()
	if err := send(); answered(err) {
		t.Fatal("a dead connection passed an answer")
	}
	if err := send(); !answered(err) {
		t.Errorf("the job after the one that noticed: %v", err)
	}
}

// TestHTTPJobSwitchedProtocols: a server switches to another protocol that nobody asked for, and waits. The
// job fails at once, and does not hold its slot.
func TestHTTPJobSwitchedProtocols(t *testing.T) {
	t.Parallel()
	url, job := serveAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprint(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, _ = conn.Read(make([]byte, 1)) // until the job hangs up
	})
	began := time.Now()
	err := perform(t, job, HTTPRequest{URL: url})
	status, ok := errors.AsType[*HTTPStatusError](err)
	if took := time.Since(began); !ok || status.Status != http.StatusSwitchingProtocols || !errors.Is(err, asynq.SkipRetry) || took > 5*time.Second {
		t.Errorf("%v after %v, want a permanent HTTPStatusError of 101 at once", err, took)
	}
}

// TestHTTPJobIdleConnections: jobs for many hosts leave a bounded number of connections open.
func TestHTTPJobIdleConnections(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.HTTP.AllowHosts = []string{"127.0.0.1"}
	job := newTestHTTPJob(t, cfg)
	var open atomic.Int32
	for range idleConns + 20 {
		api := httptest.NewUnstartedServer(http.NotFoundHandler())
		api.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				open.Add(1)
			case http.StateClosed:
				open.Add(-1)
			}
		}
		api.Start()
		t.Cleanup(api.Close)
		_ = perform(t, job, HTTPRequest{URL: api.URL})
	}
	testkit.Eventually(t, 5*time.Second, "no more connections than may be idle", func() bool { return open.Load() == idleConns },
		func() string { return fmt.Sprint(open.Load(), " connections") })
}
