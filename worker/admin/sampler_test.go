package admin_test

import (
	"sync"
	"testing"

	"github.com/jobthrottle/jobthrottle/worker/admin"
)

// TestViewersShare: many viewers at a time cost Redis what one does.
func TestViewersShare(t *testing.T) {
	s := newSite(t, 1, twoLimits, "")
	s.awaitCreated("api")
	sampler := admin.NewSampler(s.first)
	var viewers sync.WaitGroup
	for range 50 {
		viewers.Go(func() {
			if _, err := sampler.Overview(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	viewers.Wait()
	if points := len(sampler.Past()["api"]); points != 1 {
		t.Errorf("50 viewers at a time read Redis %d times, want once", points)
	}
	sampler.Forget()
	if _, err := sampler.Overview(t.Context()); err != nil {
		t.Error(err)
	}
	if points := len(sampler.Past()["api"]); points != 2 {
		t.Errorf("%d points after a change, want 2: an overview from before it is of no use", points)
	}
}
