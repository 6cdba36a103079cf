package throttle

// Stats counts what a Client did since it was made, and how many wait now.
type Stats struct {
	Calls   int64 // script calls made to Redis
	Grants  int64 // permits handed out
	Denials int64 // requests told no
	Stale   int64 // permits exchanged, or left unused, because their time had passed
	Late    int64 // permits handed out late, because the round trip to Redis alone exceeds guard/2
	Waiting int64 // requests in a queue or waiting for their place
	Errors  int64 // script calls that failed
}

// Stats returns the counters as they are now. They only grow, but for Waiting.
func (c *Client) Stats() Stats {
	n := &c.core.Counters
	return Stats{
		Calls:   n.Calls.Load(),
		Grants:  n.Grants.Load(),
		Denials: n.Denials.Load(),
		Stale:   n.Stale.Load(),
		Late:    n.Late.Load(),
		Waiting: n.Waiting.Load(),
		Errors:  n.Errors.Load(),
	}
}
