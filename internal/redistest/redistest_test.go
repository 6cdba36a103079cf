package redistest_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServersAreSeparate(t *testing.T) {
	a := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	b := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer a.Close()
	defer b.Close()
	if err := a.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.Get(t.Context(), "k").Err(); err != redis.Nil {
		t.Fatalf("the second server sees the first one's key: %v", err)
	}
}

func TestRestartKeepsAddressAndAppendOnlyData(t *testing.T) {
	s := redistest.New(t, "--appendonly", "yes", "--appendfsync", "always")
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if err := rdb.Ping(t.Context()).Err(); err == nil {
		t.Fatal("a stopped server answered")
	}
	s.Restart()
	if got, err := rdb.Get(t.Context(), "k").Result(); err != nil || got != "v" {
		t.Fatalf("after the restart: %q, %v", got, err)
	}
}
