package httplimit_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
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

// Read tells what a response says about the limits of its API: here, that one of them is used up.
func ExampleRead() {
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	resp := &http.Response{StatusCode: http.StatusForbidden, Header: http.Header{}} // your API's answer
	resp.Header.Set("Date", now.Format(http.TimeFormat))
	resp.Header.Set("X-RateLimit-Resource", "core")
	resp.Header.Set("X-RateLimit-Limit", "5000")
	resp.Header.Set("X-RateLimit-Remaining", "0")
	resp.Header.Set("X-RateLimit-Reset", strconv.FormatInt(now.Add(10*time.Minute).Unix(), 10))

	github, err := httplimit.FindPreset("github") // Preset{} if there is none for your API
	if err != nil {
		log.Fatal(err)
	}
	report := httplimit.Read(resp, github)
	if report.Refused {
		fmt.Println("refused by", report.Limit, "for", report.Pause)
	}
	for _, q := range report.Quotas {
		fmt.Println(q.Name, q.Limit, q.Unit, "in", q.Window, "and", q.Remaining, "left")
	}
	// Output:
	// refused by core for 10m0s
	// core 5000 requests in 1h0m0s and 0 left
}
