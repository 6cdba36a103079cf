package throttle_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// Reserve reserves permits and says how long it is until they are due: wait for them, or give
// them back and do something else.
func ExampleLimiter_Reserve() {
	client, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	api, err := client.LimiterWithRate("api", throttle.Rate{Permits: 1, Interval: time.Minute, Guard: -1})
	if err != nil {
		log.Fatal(err)
	}
	first, err := api.Reserve(ctx, 1, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("first:", first.OK(), first.Wait(ctx))

	second, err := api.Reserve(ctx, 1, 5*time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("second:", second.OK(), "in", second.Delay().Round(time.Minute))
	second.Cancel()

	third, err := api.Reserve(ctx, 1, time.Second)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("third:", third.OK(), "because of", third.Limiter(), "for", third.Delay().Round(time.Minute))
	// Output:
	// first: true <nil>
	// second: true in 1m0s
	// third: false because of api for 1m0s
}

// Near waits until shortly before the permits are due: prepare then what needs them, so that they do not become
// too old meanwhile.
func ExampleReservation_Near() {
	client, closeAll := connect()
	defer closeAll()
	api, err := client.LimiterWithRate("api", throttle.Rate{Permits: 1, Interval: 300 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	if err := api.Acquire(ctx, 1); err != nil {
		log.Fatal(err)
	}
	r, err := api.Reserve(ctx, 1, time.Minute) // the next permit comes an interval later
	if err != nil || !r.OK() {
		log.Fatal(r, err)
	}
	if err := r.Near(ctx, 100*time.Millisecond); err != nil {
		log.Fatal(err)
	}
	fmt.Println("open the connection: less than 100ms are left:", r.Delay() <= 100*time.Millisecond)
	if err := r.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	fmt.Println("send the request")
	// Output:
	// open the connection: less than 100ms are left: true
	// send the request
}

// A call that cost less than was reserved gives back the rest.
func ExampleReservation_Release() {
	client, closeAll := connect()
	defer closeAll()
	tokens, err := client.LimiterWithRate("tokens", throttle.Rate{Permits: 1000, Interval: time.Hour})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	r, err := tokens.Reserve(ctx, 800, time.Minute) // an estimate
	if err != nil || !r.OK() {
		log.Fatal(r, err)
	}
	if err := r.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	if err := r.Release(ctx, 500); err != nil { // the call used 300 tokens
		log.Fatal(err)
	}
	left, err := tokens.AvailablePermits(ctx)
	fmt.Println(left, err)
	// Output: 700 <nil>
}
