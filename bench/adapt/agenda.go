package main

import (
	"container/heap"
	"time"
)

// agenda is fake time: what happens next, and when. Of two events at the same time, the one
// that was planned first happens first.
type agenda struct {
	now    time.Duration
	events eventHeap
	number int
}

type event struct {
	at     time.Duration
	number int
	do     func()
}

// at plans do for the time t, or for now if t is over.
func (a *agenda) at(t time.Duration, do func()) {
	a.number++
	heap.Push(&a.events, event{max(t, a.now), a.number, do})
}

// run runs all events until the end.
func (a *agenda) run(end time.Duration) {
	for len(a.events) > 0 && a.events[0].at <= end {
		e := heap.Pop(&a.events).(event)
		a.now = e.at
		e.do()
	}
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].number < h[j].number
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(e any)   { *h = append(*h, e.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	e := old[len(old)-1]
	*h = old[:len(old)-1]
	return e
}
