package redistest_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

func TestClusterSpreadsKeys(t *testing.T) {
	addrs := redistest.StartCluster(t)
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer rdb.Close()
	for i := range 100 {
		if err := rdb.Set(t.Context(), fmt.Sprint("key", i), "v", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	total := int64(0)
	for _, addr := range addrs {
		node := redis.NewClient(&redis.Options{Addr: addr})
		n := node.DBSize(t.Context()).Val()
		node.Close()
		if n == 0 || n == 100 {
			t.Errorf("the node at %s has %d of 100 keys, want some", addr, n)
		}
		total += n
	}
	if total != 100 {
		t.Errorf("%d keys on all nodes, want 100", total)
	}
}
