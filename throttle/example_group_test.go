package throttle_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

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
