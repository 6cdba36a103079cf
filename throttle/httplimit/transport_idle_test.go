package httplimit_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

// TestWaitsLongerThanTheServer: permits are due later than the server keeps a silent connection. The requests arrive all the
// same, whatever their method is, over a new connection and over one that was used before; none takes more than one permit.
func TestWaitsLongerThanTheServer(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	t.Cleanup(func() { rdb.Close() })
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	limiter, err := client.LimiterWithRate("api", throttle.Rate{Permits: 100, Interval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	group, err := client.Group(limiter)
	if err != nil {
		t.Fatal(err)
	}
	var arrived atomic.Int64
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived.Add(1) }))
	api.Config.ReadHeaderTimeout, api.Config.IdleTimeout = 1500*time.Millisecond, 1500*time.Millisecond
	api.Start()
	t.Cleanup(api.Close)
	for _, a := range []httplimit.Acquirer{limiter, group} {
		base := &http.Transport{}
		t.Cleanup(base.CloseIdleConnections)
		users := http.Client{Transport: httplimit.Transport(base, a), Timeout: 20 * time.Second}
		for _, send := range []func() (*http.Response, error){
			func() (*http.Response, error) { return users.Get(api.URL) },                                           // over a new connection
			func() (*http.Response, error) { return users.Post(api.URL, "text/plain", strings.NewReader("once")) }, // over the one before
		} {
			if err := limiter.Pause(t.Context(), 2500*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			resp, err := send()
			if err != nil {
				t.Error(err)
				continue
			}
			resp.Body.Close()
		}
	}
	left, err := limiter.AvailablePermits(t.Context())
	if n := arrived.Load(); err != nil || n != 4 || left != 100-4 {
		t.Errorf("%d of 4 requests arrived, %d of 100 permits are left, %v", n, left, err)
	}
}

// TestNoConnectionGivesBack: a request that gets no connection gives back the permit that it has reserved.
func TestNoConnectionGivesBack(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	t.Cleanup(func() { rdb.Close() })
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	limiter, err := client.LimiterWithRate("api", throttle.Rate{Permits: 10, Interval: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	refused := errors.New("no route to host")
	rt := httplimit.Transport(&http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, refused }}, limiter)
	for range 20 {
		if _, err := (&http.Client{Transport: rt}).Get("http://api.example/"); !errors.Is(err, refused) {
			t.Fatal(err)
		}
	}
	if left, err := limiter.AvailablePermits(t.Context()); err != nil || left != 10 {
		t.Errorf("%d of 10 permits are left, %v", left, err)
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
