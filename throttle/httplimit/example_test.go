package httplimit_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

// Every request of an http.Client waits for its permit: five are sent at once, then none for an
// interval.
func ExampleTransport() {
	server, err := miniredis.Run() // in memory, so that the example runs anywhere
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	limiter, err := client.LimiterWithRate("api.example.com", throttle.Rate{Permits: 5, Interval: 200 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "done") }))
	defer site.Close()

	api := &http.Client{Transport: httplimit.Transport(nil, limiter)} // nil is http.DefaultTransport
	defer api.CloseIdleConnections()
	start := time.Now()
	for range 6 {
		resp, err := api.Get(site.URL)
		if err != nil {
			log.Fatal(err)
		}
		resp.Body.Close()
	}
	fmt.Println("six requests took an interval:", time.Since(start) >= 200*time.Millisecond)
	// Output: six requests took an interval: true
}
