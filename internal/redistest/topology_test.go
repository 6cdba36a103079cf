package redistest_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

func TestClusterMovesSlots(t *testing.T) {
	c := redistest.NewCluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	first := c.Master("k")
	second := c.Reshard("k", 10*time.Millisecond)
	if second == first || c.Master("k") != second {
		t.Fatalf("the slot of k did not move to %s", second.Addr)
	}
	c.Failover("k")
	if c.Master("k") == second {
		t.Fatal("the replica did not take over")
	}
	if got, err := rdb.Get(t.Context(), "k").Result(); err != nil || got != "v" {
		t.Fatalf("after a move and a failover: %q, %v", got, err)
	}
}

func TestSentinels(t *testing.T) {
	s := redistest.StartSentinels(t, 1)
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: redistest.SentinelMaster, SentinelAddrs: s.Addrs()})
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := rdb.Wait(t.Context(), 1, time.Second).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas have the key: %v", n, err)
	}
	s.Master.Stop()
	s.AwaitFailover()
	if got, err := rdb.Get(t.Context(), "k").Result(); err != nil || got != "v" {
		t.Fatalf("after the failover: %q, %v", got, err)
	}
}
