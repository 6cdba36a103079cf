package throttle_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestJobsAndCallersShareTags: jobs are ordered by the tags to which callers are charged, and by
// the weights that callers set; and callers by what jobs were charged.
func TestJobsAndCallersShareTags(t *testing.T) {
	ctx := t.Context()
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer rdb.Close()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	client, err := throttle.New(rdb, throttle.Options{})
	check(err)
	defer client.Close()
	api, err := client.LimiterWithRate("api", throttle.Rate{Permits: 20, Interval: 200 * time.Millisecond})
	check(err)
	check(api.SetWeight(ctx, "acme", 4))
	jobs := line.New(rdb)
	for range 8 {
		check(api.For("acme").Acquire(ctx, 1))
	}
	time.Sleep(300 * time.Millisecond)
	tags, err := jobs.Tags(ctx, nil, []string{"api"}, [][]string{{"acme", "globex"}})
	check(err)
	if got := tags[0]; got.Weights[0] != 4 || got.Finish[0] <= 0 || got.Finish[0] > 2 {
		t.Errorf("jobs know %+v of a tenant of weight 4 that had 8 permits", got)
	}
	check(jobs.Charge(ctx, []line.Charge{{Limiter: "api", V: -1, Tenants: []line.Charged{{Name: "globex", Permits: 40, Weight: 1}}}}))
	check(api.For("globex").Acquire(ctx, 1))
	time.Sleep(300 * time.Millisecond)
	if tags, err = jobs.Tags(ctx, nil, []string{"api"}, [][]string{{"globex"}}); err != nil || tags[0].Finish[0] < 41 {
		t.Errorf("a tenant whose jobs had 40 permits and which then had one has %+v, %v", tags, err)
	}
}
