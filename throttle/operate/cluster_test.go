package operate_test

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// metered is a client that somebody has wrapped.
type metered struct{ *redis.ClusterClient }

// Every master's limiters are listed, and each is read and pinned where it is.
func TestOnCluster(t *testing.T) {
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: redistest.StartCluster(t)})
	defer rdb.Close()
	c, ctx := clientOf(t, rdb), t.Context()
	s := &site{T: t}
	var names []string
	for i := range 50 {
		name := fmt.Sprintf("l:%02d", i)
		s.limited(c, name, perHour(10), 2)
		names = append(names, name)
	}
	f := operate.NewFleet(rdb)
	for _, f := range []*operate.Fleet{f, operate.NewFleet(metered{rdb})} {
		if found := listAll(t, f, "l:*"); len(found) != 50 {
			t.Errorf("%d limiters listed, want 50", len(found))
		}
	}
	for _, name := range names[:25] {
		s.check(f.Pin(ctx, name))
	}
	found, err := f.Inspect(ctx, names...)
	if err != nil || len(found) != 50 {
		t.Fatalf("%d limiters inspected, error %v, want 50", len(found), err)
	}
	for i, u := range found {
		if u.Name != names[i] || u.Used != 2 || u.Pinned != (i < 25) {
			t.Errorf("%q: %d used, pinned %v; want %q, 2 and %v", u.Name, u.Used, u.Pinned, names[i], i < 25)
		}
	}
}
