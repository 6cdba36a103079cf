package httplimit_test

import (
	"context"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/strictapi"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// The server's view, with a real limit: connections take 150 ms to open, each request has a new
// one, and there is never a request more than the limit allows.
func TestTransportKeepsTheLimitAtTheServer(t *testing.T) {
	const (
		limit    = 10
		interval = 400 * time.Millisecond
		guard    = 100 * time.Millisecond // of a machine that is busy with other tests
		requests = 35
	)
	api, err := strictapi.Start(limit, interval)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	_, _, limiter := limited(t, throttle.Rate{Permits: limit, Interval: interval, Guard: guard})
	var dialer net.Dialer
	rt := httplimit.Transport(&http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			<-time.After(150 * time.Millisecond)
			return dialer.DialContext(ctx, network, addr)
		},
	}, limiter)
	var wg sync.WaitGroup
	for range requests {
		wg.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+api.Addr(), nil)
			if err != nil {
				t.Error(err)
				return
			}
			resp, err := rt.RoundTrip(req)
			if err != nil {
				t.Error(err)
				return
			}
			resp.Body.Close()
		})
	}
	wg.Wait()
	if r := api.Report(); r.Requests != requests || r.Refused != 0 || r.Peak > limit {
		t.Errorf("%d of %d requests, %d refused, at most %d in %v; the limit is %d", r.Requests, requests, r.Refused, r.Peak, interval, limit)
	}
}

// When the server's answer has arrived, the pause that it asked for is in force.
func TestTransportPausesTheLimiter(t *testing.T) {
	api, err := strictapi.Start(0, time.Second) // always one too many
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { api.Close() })
	rdb, client, limiter := limited(t, throttle.Rate{Permits: 100, Interval: time.Second})
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	resp, err := httplimit.Transport(base, limiter).RoundTrip(newRequest(t, "GET", "http://"+api.Addr(), nil))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if ok, err := limiter.TryAcquire(t.Context(), 1); ok || err != nil {
		t.Errorf("TryAcquire after a 429 = %t, %v; want the limiter paused", ok, err)
	}
	usage, err := operate.NewFleet(rdb).InspectClient(t.Context(), client.ID(), limiter.Name())
	if err != nil {
		t.Fatal(err)
	}
	if usage.Paused <= 0 || usage.Paused > time.Second {
		t.Errorf("paused for %v, want the second of Retry-After", usage.Paused)
	}
}
