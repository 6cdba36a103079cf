package replicas_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/replicas"
)

// Nothing is granted before a replica has it. Here there is none, and the error says so.
func ExampleWaitReplicas() {
	server, err := miniredis.Run() // in memory, so that the example runs anywhere
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr(), ContextTimeoutEnabled: true})
	defer rdb.Close()
	client, err := throttle.New(replicas.WaitReplicas(rdb, 1, 100*time.Millisecond), throttle.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	api, err := client.LimiterWithRate("api", throttle.Rate{Permits: 5, Interval: time.Minute})
	if err != nil {
		log.Fatal(err)
	}

	ok, err := api.TryAcquire(context.Background(), 1)
	var few *replicas.ReplicasError
	if errors.As(err, &few) {
		fmt.Println(ok, "because", few)
	}
	// Output: false because 0 of 1 replicas acknowledged within 100ms
}
