package driver

import (
	"fmt"
	"testing"
)

// TestReportersAreForgotten: the values of a limit's key that are in use are kept, but not a
// million others.
func TestReportersAreForgotten(t *testing.T) {
	var rs reporters
	create := func() *reporter { return new(reporter) }
	used := rs.get("used", create)
	for i := range 10 * reportersKept {
		rs.get(fmt.Sprint("value ", i), create)
		if rs.get("used", nil) != used {
			t.Fatalf("after %d others, the one in use is forgotten", i)
		}
	}
	if n := len(rs.young) + len(rs.old); n > 2*reportersKept {
		t.Errorf("%d are kept", n)
	}
	if rs.get(fmt.Sprint("value ", 9*reportersKept), nil) == nil {
		t.Error("one of the latest is forgotten")
	}
	rs.remove("used")
	if rs.get("used", nil) != nil {
		t.Error("removed, and still there")
	}
}
