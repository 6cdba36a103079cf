package slots

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"
)

// TestNewcomersAreAsked: so many stand in line here that one call cannot ask for all of them, and they ask before each call, as
// they do if Redis is far away and this process does not hear of slots. Who comes now gets into the line all the same.
func TestNewcomersAreAsked(t *testing.T) {
	q := newQueue(New(nil, "client", nil), []Limit{{Name: "seats"}}, "token")
	for i := range 2 * maxAsks {
		w := &waiter{id: fmt.Sprint("stands", i), first: &atomic.Int64{}, stands: true}
		w.first.Store(int64(1 + i))
		q.order = append(q.order, w)
	}
	newcomer := &waiter{id: "newcomer", first: &atomic.Int64{}}
	q.order = append(q.order, newcomer)
	q.ask(newcomer)
	for range 5 {
		polled := time.Now().Add(-pollUnheard)
		if _, asks, _ := q.next(&polled); slices.Contains(asks, newcomer) {
			return
		}
	}
	t.Error("5 calls were made without the newcomer")
}
