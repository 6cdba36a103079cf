package operate_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// An operator lists the limiters, inspects one, and pins it.
func ExampleFleet() {
	server, err := miniredis.Run() // in memory, so that the example runs anywhere
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	ctx := context.Background()

	// Some process uses a limit.
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	limiter, err := client.LimiterWithRate("stripe:eu", throttle.Rate{Permits: 100, Interval: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	if err := limiter.Acquire(ctx, 30); err != nil {
		log.Fatal(err)
	}

	fleet := operate.NewFleet(rdb)
	for l, err := range fleet.Limiters(ctx, "stripe:*") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(l.Name, l.Rate)
	}
	if err := fleet.Pin(ctx, "stripe:eu"); err != nil {
		log.Fatal(err)
	}
	usages, err := fleet.Inspect(ctx, "stripe:eu", "stripe:us")
	if err != nil {
		log.Fatal(err)
	}
	for _, u := range usages {
		fmt.Println(u.Name, "used", u.Used, "available", u.Available, "pinned", u.Pinned)
	}
	fmt.Println(fleet.Pin(ctx, "stripe:us"))
	// Output:
	// stripe:eu 100/1h
	// stripe:eu used 30 available 70 pinned true
	// throttle: limiter "stripe:us": not initialized: it has no rate in Redis
}
