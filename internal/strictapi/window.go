package strictapi

import "time"

// window holds the arrivals of the last interval, oldest first. The busiest interval is found
// exactly by checking the interval before each arrival: any other interval can be moved to the
// right until it ends at an arrival, and loses none.
type window struct {
	arrivals []time.Duration
	total    int
	peak     int
}

// add records an arrival, which is not earlier than those before it. It returns how many
// arrivals the interval that ends with it holds.
func (w *window) add(at, interval time.Duration) int {
	w.arrivals = append(w.arrivals, at)
	w.total++
	n := w.count(at, interval)
	w.peak = max(w.peak, n)
	return n
}

// count returns how many arrivals the interval (now - interval, now] holds, and removes those
// before it.
func (w *window) count(now, interval time.Duration) int {
	old := 0
	for old < len(w.arrivals) && now-w.arrivals[old] >= interval {
		old++
	}
	w.arrivals = w.arrivals[old:]
	return len(w.arrivals)
}
