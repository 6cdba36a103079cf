package asynqlimit

import (
	"fmt"
	"hash/maphash"
	"testing"
)

// TestRecent: the last names are remembered, also one that is only asked for, and not many more.
func TestRecent(t *testing.T) {
	const most, names = 100, 1000
	r := newRecent(most)
	r.add("asked for")
	for i := range names {
		r.add(fmt.Sprint(i))
		if !r.has("asked for") {
			t.Fatalf("forgotten after %d others", i)
		}
	}
	for i := range names {
		hash := maphash.String(r.seed, fmt.Sprint(i))
		_, now := r.now[hash]
		_, before := r.before[hash]
		if has := now || before; has && i < names-2*most || !has && i > names-most {
			t.Errorf("name %d of %d is remembered: %v", i, names, has)
		}
	}
	if n := len(r.now) + len(r.before); n > 2*most {
		t.Errorf("%d are remembered, want %d at most", n, 2*most)
	}
}
