package slots

import (
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReleaseAtTheEnd: whoever releases a lease that ends just then keeps nobody from it who has the Keeper. (The Keeper
// renews leases, and needs both.)
func TestReleaseAtTheEnd(t *testing.T) {
	k := New(nil, "client", nil)
	q := newQueue(k, []Limit{{Name: "limit", Slots: 1}}, "token")
	l := newLease(q, &waiter{id: "id"}, "1", time.Now().Add(time.Hour), time.Hour)
	k.mu.Lock()
	k.over = true // no goroutine is started: there is no Redis
	ended, released := make(chan struct{}), make(chan struct{})
	go func() { l.end(ErrEnded); close(ended) }()
	<-l.ctx.Done()
	go func() { l.back(); close(released) }()
	for q.mu.TryLock() {
		q.mu.Unlock()
		runtime.Gosched()
	}
	for range 100 { // until whoever has the queue's mutex waits for the Keeper's
		runtime.Gosched()
	}
	if l.mu.TryLock() {
		l.mu.Unlock()
	} else {
		t.Error("who releases a lease has its mutex while it waits for the Keeper")
	}
	k.closed = true
	k.mu.Unlock()
	<-ended
	<-released
	k.cancel()
	k.wg.Wait()
}

// TestStoppedHolder: a process was stopped while its lease ended. When it goes on, the context of the lease has ended, before any
// timer has fired.
func TestStoppedHolder(t *testing.T) {
	k := New(nil, "client", nil)
	q := newQueue(k, []Limit{{Name: "limit", Slots: 1}}, "token")
	l := newLease(q, &waiter{id: "id"}, "1", time.Now().Add(time.Hour), time.Hour)
	l.mu.Lock()
	l.ends = time.Now()
	l.mu.Unlock()
	if l.Context().Err() == nil {
		t.Error("the lease has ended, and its context has not")
	}
	l.end(ErrReleased)
	k.cancel()
	k.wg.Wait()
}
