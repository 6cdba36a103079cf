package throttle_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/redis/go-redis/v9"
)

// presence is how long Redis remembers which clients there were.
const presence = time.Minute

// TestClientsLeaveNothing: of PER_CLIENT clients that came and went, only the limiter's
// configuration stays. Clients that crash leave no more than those that are closed, so here they
// are not closed.
func TestClientsLeaveNothing(t *testing.T) {
	t.Parallel()
	clients := 500
	if nightly() {
		clients = 10_000
	}
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer rdb.Close()
	r := throttle.Rate{Type: throttle.PerClient, Permits: 3, Interval: 200 * time.Millisecond}
	cs := make([]*throttle.Client, clients)
	forEach(clients, func(i int) {
		c, err := throttle.New(rdb, throttle.Options{})
		if err != nil {
			t.Error(err)
			return
		}
		cs[i] = c
		l, err := c.LimiterWithRate(t.Name(), r)
		if err != nil {
			t.Error(err)
			return
		}
		for range 4 { // the last one waits for its permit
			if err := l.Acquire(t.Context(), 1); err != nil {
				t.Error(err)
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	checkAllExpire(t, rdb, t.Name(), presence+time.Second)
	// The data of each client goes first; the record of which clients there were goes later.
	awaitKeys(t, rdb, 20*time.Second, "of single clients", func(key string) bool {
		return key != t.Name() && !strings.HasSuffix(key, ":clients")
	})
	if nightly() {
		awaitKeys(t, rdb, presence+5*time.Second, "but the configuration", func(key string) bool { return key != t.Name() })
	}
	for _, c := range cs {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	awaitKeys(t, rdb, presence+5*time.Second, "that Close would have brought back", func(key string) bool {
		return key != t.Name() && !strings.HasSuffix(key, ":clients")
	})
}

// TestIdleKeyedLimitersLeaveNothing: limiters made for a value of a payload disappear, with their
// configuration, when nobody has used them for their KeepAlive.
func TestIdleKeyedLimitersLeaveNothing(t *testing.T) {
	t.Parallel()
	limiters := 2_000
	if nightly() {
		limiters = 100_000
	}
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer rdb.Close()
	c, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	r := throttle.Rate{Permits: 3, Interval: 100 * time.Millisecond, KeepAlive: 2 * time.Second}
	forEach(limiters, func(i int) {
		l, err := c.LimiterWithRate(fmt.Sprintf("%s:%d", t.Name(), i), r)
		if err != nil {
			t.Error(err)
			return
		}
		for range 4 {
			if err := l.Acquire(t.Context(), 1); err != nil {
				t.Error(err)
			}
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	checkAllExpire(t, rdb, "", r.KeepAlive+time.Second)
	awaitKeys(t, rdb, 2*r.KeepAlive+5*time.Second, "at all", func(string) bool { return true })
}

// forEach calls f for 0 to n-1, a hundred at a time.
func forEach(n int, f func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range 100 {
		wg.Go(func() {
			for i := range next {
				f(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// scan calls f for each key there is.
func scan(t *testing.T, rdb *redis.Client, f func(key string)) {
	t.Helper()
	keys := rdb.Scan(context.Background(), 0, "*", 1000).Iterator()
	for keys.Next(context.Background()) {
		f(keys.Val())
	}
	if err := keys.Err(); err != nil {
		t.Fatal(err)
	}
}

// checkAllExpire fails the test if any key except one stays, or stays longer than most.
func checkAllExpire(t *testing.T, rdb *redis.Client, but string, most time.Duration) {
	t.Helper()
	kept := 0
	scan(t, rdb, func(key string) {
		ttl, err := rdb.PTTL(context.Background(), key).Result()
		switch {
		case err != nil:
			t.Error(err)
		case key != but && (ttl == -1 || ttl > most):
			if kept++; kept <= 3 {
				t.Errorf("key %q would live for %v, want at most %v", key, ttl, most)
			}
		}
	})
	if kept > 3 {
		t.Errorf("... and %d more", kept-3)
	}
}

// awaitKeys fails the test unless the keys that match are gone in time.
func awaitKeys(t *testing.T, rdb *redis.Client, within time.Duration, which string, match func(key string) bool) {
	t.Helper()
	deadline := time.NewTimer(within)
	defer deadline.Stop()
	poll := time.NewTicker(200 * time.Millisecond)
	defer poll.Stop()
	for {
		var left int
		var one string
		scan(t, rdb, func(key string) {
			if match(key) {
				left++
				one = key
			}
		})
		if left == 0 {
			return
		}
		select {
		case <-poll.C:
		case <-deadline.C:
			t.Errorf("after %v there are still %d keys %s, such as %q", within, left, which, one)
			return
		}
	}
}
