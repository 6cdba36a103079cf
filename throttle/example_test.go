package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/redis/go-redis/v9"
)

// connect starts a Redis in memory, so that the examples run anywhere, and a
// Client for it.
func connect() (*throttle.Client, func()) {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		log.Fatal(err)
	}
	return client, func() {
		client.Close()
		rdb.Close()
		server.Close()
	}
}

// Acquire waits until the permits may be used: five at once, then none for an
// interval.
func ExampleLimiter_Acquire() {
	client, closeAll := connect()
	defer closeAll()
	api, err := client.LimiterWithRate("api", throttle.Rate{Permits: 5, Interval: 200 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	start := time.Now()
	for range 6 {
		if err := api.Acquire(context.Background(), 1); err != nil {
			log.Fatal(err)
		}
		// call the API here
	}
	fmt.Println("six calls took an interval:", time.Since(start) >= 200*time.Millisecond)
	// Output: six calls took an interval: true
}

// If the permits would come too late, there is an error at once, not after the deadline.
func ExampleLimiter_Acquire_deadline() {
	client, closeAll := connect()
	defer closeAll()
	api, err := client.LimiterWithRate("api", throttle.Rate{Permits: 1, Interval: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(api.Acquire(ctx, 1))
	fmt.Println(errors.Is(api.Acquire(ctx, 1), throttle.ErrExceedsDeadline))
	fmt.Println(api.Acquire(ctx, 2))
	// Output:
	// <nil>
	// true
	// throttle: limiter "api": more permits than the rate allows (2 of at most 1)
}

// Tenants share a limit: one that asks for a little does not wait behind everything that another
// asks for.
func ExampleLimiter_For() {
	client, closeAll := connect()
	defer closeAll()
	api, err := client.LimiterWithRate("api", throttle.Rate{Permits: 10, Interval: 200 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	if err := api.SetWeight(context.Background(), "globex", 2); err != nil { // acme weighs 1
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var many sync.WaitGroup
	for range 1000 { // they take 20 s
		many.Go(func() { _ = api.For("acme").Acquire(ctx, 1) })
	}
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	for range 3 {
		if err := api.For("globex").Acquire(ctx, 1); err != nil {
			log.Fatal(err)
		}
		// call the API for globex here
	}
	fmt.Println("globex did not wait for acme:", time.Since(start) < 10*time.Second)
	cancel()
	many.Wait()
	// Output: globex did not wait for acme: true
}

// A refusal says how long the wait would have been: an HTTP server can answer it as Retry-After,
// for example.
func ExampleError() {
	client, closeAll := connect()
	defer closeAll()
	api, err := client.LimiterWithRate("api", throttle.Rate{Permits: 1, Interval: time.Hour, Guard: -1})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for range 2 {
		err := api.Acquire(ctx, 1)
		var refused *throttle.Error
		if errors.Is(err, throttle.ErrExceedsDeadline) && errors.As(err, &refused) {
			fmt.Println(refused.Limiter, "is busy, ask again in", refused.Wait.Round(time.Minute))
		}
	}
	// Output: api is busy, ask again in 1h0m0s
}

// TryAcquire does not wait: a denial is a value, an error means that nothing
// was decided.
func ExampleLimiter_TryAcquire() {
	client, closeAll := connect()
	defer closeAll()
	api, err := client.LimiterWithRate("api", throttle.Rate{Permits: 2, Interval: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	for range 3 {
		ok, err := api.TryAcquire(context.Background(), 1)
		fmt.Println(ok, err)
	}
	// Output:
	// true <nil>
	// true <nil>
	// false <nil>
}

// UpdateRate changes a limit in use, for all processes, and keeps its usage.
func ExampleLimiter_UpdateRate() {
	client, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	api, err := client.Limiter("api")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(api.UpdateRate(ctx, throttle.Rate{Permits: 10, Interval: time.Minute}))
	fmt.Println(api.TrySetRate(ctx, throttle.Rate{Permits: 10, Interval: time.Minute}))
	fmt.Println(api.TryAcquire(ctx, 8))
	fmt.Println(api.UpdateRate(ctx, throttle.Rate{Permits: 12, Interval: time.Minute}))
	fmt.Println(api.AvailablePermits(ctx))
	// Output:
	// false <nil>
	// true <nil>
	// true <nil>
	// true <nil>
	// 4 <nil>
}

// A limit adapts to its API: a refusal cuts it, for all processes.
func ExampleLimiter_SetAdapt() {
	client, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	api, err := client.LimiterWithRate("api", throttle.Rate{Permits: 50, Interval: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	if err := api.SetAdapt(ctx, throttle.Adapt{Min: 1, Max: 200}); err != nil {
		log.Fatal(err)
	}
	if err := api.Acquire(ctx, 1); err != nil {
		log.Fatal(err)
	}
	sent := time.Now()
	// call the API here: it answers 429 Too Many Requests
	api.Observe(sent, throttle.Outcome{Refused: true})

	rate, err := api.Config(ctx)
	for err == nil && rate.Permits == 50 { // Observe does not wait for Redis
		time.Sleep(time.Millisecond)
		rate, err = api.Config(ctx)
	}
	fmt.Println("less than 50:", rate.Permits < 50, err)
	// Output: less than 50: true <nil>
}

// A rate as text, as in a configuration file.
func ExampleParseRate() {
	rate, err := throttle.ParseRate("100/1s")
	fmt.Println(rate.Permits, rate.Interval, err)
	_, err = throttle.ParseRate("100 per second")
	fmt.Println(errors.Is(err, throttle.ErrInvalidRate))
	// Output:
	// 100 1s <nil>
	// true
}

// A pause stops all processes: an API has said to stay away, or somebody has found a mistake.
func ExampleLimiter_Pause() {
	client, closeAll := connect()
	defer closeAll()
	api, err := client.LimiterWithRate("api", throttle.Rate{Permits: 5, Interval: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if err := api.Pause(ctx, time.Hour); err != nil {
		log.Fatal(err)
	}
	ok, err := api.TryAcquire(ctx, 1)
	fmt.Println("during the pause:", ok, err)
	if err := api.Resume(ctx); err != nil {
		log.Fatal(err)
	}
	ok, err = api.TryAcquire(ctx, 1)
	fmt.Println("after Resume:", ok, err)
	// Output:
	// during the pause: false <nil>
	// after Resume: true <nil>
}
