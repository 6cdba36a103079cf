package fleet

import (
	"slices"
	"time"
)

// Permits returns how many permits were used.
func Permits(uses []Use) (sum int64) {
	for _, u := range uses {
		sum += int64(u.Permits)
	}
	return sum
}

// Busiest returns the most permits used in any window of that length.
func Busiest(uses []Use, interval time.Duration) (most int64) {
	w := window{uses: uses, interval: interval}
	for _, u := range uses {
		most = max(most, w.until(u.At))
	}
	return most
}

// Load returns, for each step of time, how many permits were used in the interval up to it. If
// the interval up to a use since the step before holds more, it returns that number.
func Load(uses []Use, interval, step, length time.Duration) []int64 {
	var loads []int64
	w := window{uses: uses, interval: interval}
	i := 0
	for t := time.Duration(0); t <= length; t += step {
		var most int64
		for ; i < len(uses) && uses[i].At <= t; i++ {
			most = max(most, w.until(uses[i].At))
		}
		loads = append(loads, max(most, w.until(t)))
	}
	return loads
}

// window moves along uses.
type window struct {
	uses        []Use
	interval    time.Duration
	first, next int // of the uses in the window
	sum         int64
}

// until returns how many permits were used in the interval up to t. t must not fall.
func (w *window) until(t time.Duration) int64 {
	for ; w.next < len(w.uses) && w.uses[w.next].At <= t; w.next++ {
		w.sum += int64(w.uses[w.next].Permits)
	}
	for ; w.first < w.next && w.uses[w.first].At <= t-w.interval; w.first++ {
		w.sum -= int64(w.uses[w.first].Permits)
	}
	return w.sum
}

// Lateness is how long after its ideal time each use came, in ascending order. The ideal time
// is the earliest that the limits allow after what was used before: permit k of a limit of p is
// due one interval after permit k-p, and the first p with the first use of all. Time that an
// earlier use wasted does not count again. A value below zero is too early: more than the limit
// in one interval.
func Lateness(uses []Use, limits []Limit) []time.Duration {
	if len(uses) == 0 {
		return nil
	}
	late := make([]time.Duration, len(uses))
	back := make([]cursor, len(limits)) // at permit k-p of each limit
	var taken int64
	for i, u := range uses {
		taken += int64(u.Permits)
		ideal := uses[0].At
		for j, l := range limits {
			if taken > l.Permits {
				ideal = max(ideal, back[j].seek(uses, taken-l.Permits)+l.Interval)
			}
		}
		late[i] = u.At - ideal
	}
	slices.Sort(late)
	return late
}

// cursor moves along uses permit by permit.
type cursor struct {
	use int
	sum int64 // permits before that use
}

// seek returns the time of the k-th permit, counted from 1. k must not fall.
func (c *cursor) seek(uses []Use, k int64) time.Duration {
	for c.sum+int64(uses[c.use].Permits) < k {
		c.sum += int64(uses[c.use].Permits)
		c.use++
	}
	return uses[c.use].At
}

// Took is how long each call to acquire took, in ascending order. It is right for goroutines
// that do nothing else: it is the time since the goroutine's last use.
func Took(uses []Use) []time.Duration {
	type who struct{ client, goroutine uint16 }
	last := map[who]time.Duration{}
	took := make([]time.Duration, len(uses))
	for i, u := range uses {
		me := who{u.Client, u.Goroutine}
		took[i] = u.At - last[me]
		last[me] = u.At
	}
	slices.Sort(took)
	return took
}

// Jain is Jain's fairness index over the permits of the clients: 1 if all got the same number,
// 1/clients if one got everything.
func Jain(uses []Use, clients int) float64 {
	got := make([]float64, clients)
	for _, u := range uses {
		got[u.Client] += float64(u.Permits)
	}
	var sum, squares float64
	for _, x := range got {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(clients) * squares)
}

// Percentile is the value that p percent of the ascending values do not exceed.
func Percentile(ascending []time.Duration, p int) time.Duration {
	if len(ascending) == 0 {
		return 0
	}
	return ascending[min(len(ascending)*p/100, len(ascending)-1)]
}
