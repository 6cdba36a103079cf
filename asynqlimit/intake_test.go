package asynqlimit

import "testing"

// TestTakeNext: tasks that keep coming are taken many at a time, and those that
// come now and then one by one, so that other processes have theirs.
func TestTakeNext(t *testing.T) {
	n := 1
	for calls, tasks := 0, 0; tasks < 1000; calls++ {
		tasks += n
		if n = takeNext(n, n, 1000); calls > 1000/takenMost+5 {
			t.Fatalf("%d calls for %d tasks", calls, tasks)
		}
	}
	for range 5 {
		n = takeNext(n, 1, 1000)
	}
	if n > 2 {
		t.Errorf("takes %d at a time where one comes", n)
	}
	if n = takeNext(n, 0, 1000); n != 1 {
		t.Errorf("takes %d from an empty queue", n)
	}
	for range 10 {
		n = takeNext(n, n, 20)
	}
	if n != 5 {
		t.Errorf("takes %d at a time for 20 slots", n)
	}
}
