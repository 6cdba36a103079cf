package line

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// TestShareByWeight: two processes whose queues have weights 3 and 1 take turns at a limiter that
// gives few permits at a time.
func TestShareByWeight(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer rdb.Close()
	l := New(rdb)
	for _, most := range []int64{1, 3, 100} {
		for _, due := range []int64{1, 2, 5, 50} {
			rdb.FlushAll(t.Context())
			got := map[string]int64{}
			share := func(queue string, weight int, due int64) {
				t.Helper()
				s, err := l.Share(t.Context(), []Sharing{{Limiter: "api", Due: due, Capacity: most, Queues: []Demand{{Queue: queue, Weight: weight, Left: 1000}}}})
				if err != nil {
					t.Fatal(err)
				}
				got[queue] += s[0][0]
			}
			share("light", 1, 0) // both are known before the first permit comes
			share("heavy", 3, 0)
			for range 200 {
				share("light", 1, due)
				share("heavy", 3, due)
			}
			if share := float64(got["heavy"]) / float64(got["heavy"]+got["light"]); most == 100 && (share < 0.7 || share > 0.8) {
				t.Errorf("%d due at a time, room for %d: %v, want three times as many for the queue of weight 3", due, most, got)
			}
		}
	}
}
