package llmapi

import (
	"slices"
	"time"
)

// Report is what an API has seen.
type Report struct {
	Requests, Tokens int64
	// BusiestRequests and BusiestTokens are the most within one interval.
	BusiestRequests, BusiestTokens int64
	// Unsettled is the largest difference, at the end of an interval, between the cost of calls
	// that had not settled yet and what their callers had estimated.
	Unsettled int64
	// Unexplained is the most by which the tokens of an interval exceeded the limit plus the
	// unsettled tokens. More than zero is a broken promise.
	Unexplained int64
	// Spread is the time from the first to the last call.
	Spread time.Duration
}

// Report judges the calls so far. It checks each interval that ends when a call came, or when a
// caller had settled.
func (a *API) Report() Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	var r Report
	var ends []time.Duration
	for _, c := range a.order {
		r.Tokens += c.tokens
		ends = append(ends, c.at)
		if c.settled > 0 {
			ends = append(ends, c.settled)
		}
	}
	r.Requests = int64(len(a.order))
	if r.Requests > 0 {
		r.Spread = a.order[len(a.order)-1].at - a.order[0].at
	}
	slices.Sort(ends)
	first := 0
	for _, end := range ends {
		for first < len(a.order) && end-a.order[first].at >= a.interval {
			first++
		}
		w := window(a.order[first:], end)
		r.BusiestRequests, r.BusiestTokens = max(r.BusiestRequests, w.requests), max(r.BusiestTokens, w.tokens)
		r.Unsettled = max(r.Unsettled, w.unsettled)
		r.Unexplained = max(r.Unexplained, w.tokens-a.tokens-w.unsettled)
	}
	return r
}

type counts struct{ requests, tokens, unsettled int64 }

// window counts the calls up to end.
func window(calls []*call, end time.Duration) (w counts) {
	for _, c := range calls {
		if c.at > end {
			break
		}
		w.requests, w.tokens = w.requests+1, w.tokens+c.tokens
		if c.settled == 0 || c.settled > end {
			w.unsettled += max(c.tokens-c.estimate, 0)
		}
	}
	return w
}

// Within counts the calls within d of the first call.
func (a *API) Within(d time.Duration) (requests, tokens int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.order {
		if c.at-a.order[0].at < d {
			requests, tokens = requests+1, tokens+c.tokens
		}
	}
	return requests, tokens
}
