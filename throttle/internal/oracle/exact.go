package oracle

// Window is a stretch of time, End not included, and the permits that it holds.
type Window struct{ From, End, Permits int64 }

// Excess is the first window that holds more than the limit, wherever it begins. For a log the
// span is that of its entries (Span). For the times at which callers got permits it is the
// Interval.
func (l Limit) Excess(log Log, span int64) (Window, bool) {
	first, sum := 0, int64(0)
	for i, e := range log {
		sum += e.Permits
		for !l.share(log[first].At, e.At, span) {
			sum -= log[first].Permits
			first++
		}
		if sum > l.Permits && (i == len(log)-1 || log[i+1].At > e.At) {
			w := Window{log[first].At, log[first].At + span, sum}
			if l.Calendar {
				w.From, w.End = l.Start(e.At), l.Start(e.At)+l.Interval
			}
			return w, true
		}
	}
	return Window{}, false
}

// share reports whether there is a window that contains both times.
func (l Limit) share(a, b, span int64) bool {
	if l.Calendar {
		return l.Start(a) == l.Start(b)
	}
	return b-a < span
}
