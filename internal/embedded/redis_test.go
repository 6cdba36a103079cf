package embedded_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/internal/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKeysExpireByTheWallClock(t *testing.T) {
	server, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := rdb.Set(ctx, "brief", "x", 20*time.Millisecond).Err(); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		n, err := rdb.Exists(ctx, "brief").Result()
		if err != nil {
			t.Fatalf("key did not expire: %v", err)
		}
		if n == 0 {
			return
		}
		<-tick.C
	}
}

func TestServersAreApart(t *testing.T) {
	first, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if first.Addr() == second.Addr() {
		t.Fatalf("both servers listen on %s", first.Addr())
	}
}
