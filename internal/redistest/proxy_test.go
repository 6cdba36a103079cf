package redistest

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestProxy(t *testing.T) {
	addr := Start(t)
	p := NewProxy(t, addr)
	direct := redis.NewClient(&redis.Options{Addr: addr})
	defer direct.Close()
	through := redis.NewClient(&redis.Options{Addr: p.Addr, MaxRetries: -1, PoolSize: 1})
	defer through.Close()
	incr := func() error { return through.Incr(t.Context(), "key").Err() }
	expect := func(what string, failed bool, want int) {
		t.Helper()
		if err := incr(); (err != nil) != failed {
			t.Errorf("%s: error %v", what, err)
		}
		if got, err := direct.Get(t.Context(), "key").Int(); err != nil || got != want {
			t.Errorf("%s: the server counted %d (%v), want %d", what, got, err, want)
		}
	}
	expect("as it is", false, 1)
	p.LoseReplies(1)
	expect("lost reply", true, 2)
	expect("after it", false, 3)

	p.Cut()
	for incr() != nil { // the pool may not know yet that its connection is gone
	}
	before := time.Now()
	p.Delay(10 * time.Millisecond)
	expect("delayed", false, 5)
	if took := time.Since(before); took < 20*time.Millisecond {
		t.Errorf("a round trip took %v with 10ms each way", took)
	}
	p.Delay(0)
	expect("no longer", false, 6)
}

func TestProxyOfAServerThatIsDown(t *testing.T) {
	s := New(t)
	p := NewProxy(t, s.Addr)
	s.Stop()
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr, MaxRetries: -1})
	defer rdb.Close()
	err := rdb.Ping(t.Context()).Err()
	if reply := redis.Error(nil); err == nil || errors.As(err, &reply) {
		t.Errorf("error %v, want a broken connection", err)
	}
}
