package operate_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestDeleteInFlight: a limit in flight is removed, also one whose fields make no sense; its leases end, and the next who asks
// creates it again. What is no limit in flight stays.
func TestDeleteInFlight(t *testing.T) {
	forEachRedis(t, func(s *site) {
		ctx, f := s.Context(), s.fleet()
		c := s.client()
		s.limited(c, "rate", perHour(10), 3)
		s.check(s.rdb.HSet(ctx, "foreign", "name", "Ann").Err())
		for _, name := range []string{"rate", "foreign", "missing"} {
			if deleted, err := f.DeleteInFlight(ctx, name); err != nil || deleted {
				s.Errorf("%s: %v, %v", name, deleted, err)
			}
		}
		if found, err := f.Inspect(ctx, "rate"); err != nil || len(found) != 1 || found[0].Used != 3 {
			s.Errorf("the rate limit: %+v, %v", found, err)
		}
		if name := s.rdb.HGet(ctx, "foreign", "name").Val(); name != "Ann" {
			s.Errorf("the foreign hash: %q", name)
		}
		_, err := f.DeleteInFlight(ctx, "a{b")
		s.expectError("DeleteInFlight", err, throttle.ErrInvalidName, "a{b")

		slots, err := c.InFlight("crm", throttle.Slots{Limit: 1, Lease: 3 * time.Second})
		s.check(err)
		lease, err := slots.Acquire(ctx, "a")
		s.check(err)
		for range 2 { // as it is, and spoilt
			if deleted, err := f.DeleteInFlight(ctx, "crm"); err != nil || !deleted {
				s.Errorf("%v, %v", deleted, err)
			}
			for _, key := range s.rdb.Keys(ctx, "*crm*").Val() {
				if !strings.HasPrefix(key, "{crm}:call:") { // replies, which expire
					s.Errorf("%q is left", key)
				}
			}
			select {
			case <-lease.Context().Done():
			case <-time.After(5 * time.Second):
				s.Error("its lease goes on")
			}
			if lease, err = slots.Acquire(ctx, "b"); err != nil {
				s.Fatal(err)
			}
			s.check(s.rdb.HSet(ctx, "crm", "in_flight", "many").Err())
		}
	})
}
