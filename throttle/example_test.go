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

// A Group takes permits of several limits, for the same time, or of none.
func ExampleClient_Group() {
	client, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	limit := func(name string, r throttle.Rate) *throttle.Limiter {
		l, err := client.LimiterWithRate(name, r)
		if err != nil {
			log.Fatal(err)
		}
		return l
	}
	fleet := limit("fleet", throttle.Rate{Permits: 100, Interval: time.Minute})
	worker := limit("worker", throttle.Rate{Permits: 25, Interval: time.Minute, Type: throttle.PerClient})
	account := limit("account:7", throttle.Rate{Permits: 1, Interval: time.Minute})
	group, err := client.Group(fleet, worker, account)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(group.Acquire(ctx, 1))

	refused, err := group.Reserve(ctx, 1, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("refused by", refused.Limiter())
	left, err := fleet.AvailablePermits(ctx)
	fmt.Println("left for the fleet:", left, err)
	// Output:
	// <nil>
	// refused by account:7
	// left for the fleet: 99 <nil>
}

// A call of an LLM API costs one request and an estimate of tokens. Tokens that were not used in
// the end are given back.
func ExampleGroup_AcquireEach() {
	client, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	requests, err := client.LimiterWithRate("llm-requests", throttle.Rate{Permits: 500, Interval: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	tokens, err := client.LimiterWithRate("llm-tokens", throttle.Rate{Permits: 90_000, Interval: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	llm, err := client.Group(requests, tokens)
	if err != nil {
		log.Fatal(err)
	}

	const estimate = 1000
	if err := llm.AcquireEach(ctx, 1, estimate); err != nil {
		log.Fatal(err)
	}
	used := int64(740) // as the API's answer says
	if used < estimate {
		err = llm.ReleaseEach(ctx, 0, estimate-used)
	} else if used > estimate {
		err = tokens.Acquire(ctx, used-estimate)
	}
	if err != nil {
		log.Fatal(err)
	}

	left, err := tokens.AvailablePermits(ctx)
	fmt.Println("tokens left:", left, err)
	left, err = requests.AvailablePermits(ctx)
	fmt.Println("requests left:", left, err)
	// Output:
	// tokens left: 89260 <nil>
	// requests left: 499 <nil>
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

// A limit in flight has so many slots for all processes. Who comes while all are taken waits until
// one is given back.
func ExampleClient_InFlight() {
	client, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	exports, err := client.InFlight("exports", throttle.Slots{Limit: 1})
	if err != nil {
		log.Fatal(err)
	}
	first, err := exports.Acquire(ctx, "export-1") // the id names who has the slot
	if err != nil {
		log.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = exports.Acquire(short, "export-2")
	fmt.Println("while the slot is taken:", errors.Is(err, context.DeadlineExceeded))

	if err := first.Release(ctx); err != nil {
		log.Fatal(err)
	}
	second, err := exports.Acquire(ctx, "export-2")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("after its release:", second.Release(ctx))
	// Output:
	// while the slot is taken: true
	// after its release: <nil>
}

// A request that needs a slot and a permit takes both, or none.
func ExampleGroup_WithSlots() {
	client, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	calls, err := client.LimiterWithRate("calls", throttle.Rate{Permits: 10, Interval: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	slots, err := client.InFlight("connections", throttle.Slots{Limit: 1})
	if err != nil {
		log.Fatal(err)
	}
	group, err := client.Group(calls)
	if err != nil {
		log.Fatal(err)
	}
	both, err := group.WithSlots(slots)
	if err != nil {
		log.Fatal(err)
	}
	lease, err := both.AcquireEach(ctx, "request-1", 2) // two permits of calls
	if err != nil {
		log.Fatal(err)
	}
	defer lease.Release(ctx)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_, err = both.AcquireEach(short, "request-2", 2)
	fmt.Println("while the slot is taken:", errors.Is(err, context.DeadlineExceeded))
	left, err := calls.AvailablePermits(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("permits left:", left)
	// Output:
	// while the slot is taken: true
	// permits left: 8
}

// Whatever runs under a Lease uses its context, which ends when the slot may be another's.
func ExampleLease_Context() {
	client, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	exports, err := client.InFlight("exports", throttle.Slots{Limit: 1})
	if err != nil {
		log.Fatal(err)
	}
	lease, err := exports.Acquire(ctx, "export-1")
	if err != nil {
		log.Fatal(err)
	}
	again, err := exports.Acquire(ctx, "export-1") // the same id takes the slot over
	if err != nil {
		log.Fatal(err)
	}
	defer again.Release(ctx)
	<-lease.Context().Done()
	fmt.Println("first:", context.Cause(lease.Context()))
	fmt.Println("second:", again.Context().Err())
	// Output:
	// first: another holder has come with the same id
	// second: <nil>
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
