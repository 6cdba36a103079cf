package throttle

import "sync/atomic"

// Stats counts what a Client did since it was made, and how many wait now.
type Stats struct {
	Calls   int64 // script calls made to Redis
	Grants  int64 // permits handed out
	Denials int64 // requests told no
	Stale   int64 // permits exchanged because their time had passed
	Late    int64 // permits handed out late, because the round trip to Redis alone exceeds guard/2
	Waiting int64 // requests in a queue or waiting for their place
	Errors  int64 // script calls that failed
}

type counters struct {
	calls, grants, denials, stale, late, waiting, errors atomic.Int64
}

// Stats returns the counters as they are now. They only grow, but for Waiting.
func (c *Client) Stats() Stats {
	return Stats{
		Calls:   c.calls.Load(),
		Grants:  c.grants.Load(),
		Denials: c.denials.Load(),
		Stale:   c.stale.Load(),
		Late:    c.late.Load(),
		Waiting: c.waiting.Load(),
		Errors:  c.errors.Load(),
	}
}
