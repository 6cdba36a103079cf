package throttle

import "time"

// Stats counts what a [Client] did since it was made, and how many wait now.
type Stats struct {
	Calls   int64 // script calls made to Redis
	Grants  int64 // permits handed out
	Denials int64 // requests denied
	Stale   int64 // permits exchanged, or left unused, because they were too old
	Late    int64 // permits handed out late, because the round trip to Redis alone exceeds guard/2
	Waiting int64 // requests that wait in a queue or for their reservation to be due
	Errors  int64 // script calls that failed

	LastError   error     `json:"-"` // why the last of these failed, nil if none did
	LastErrorAt time.Time `json:"-"` // when that was
}

// Stats returns the counters as they are now. They only grow, except Waiting.
func (c *Client) Stats() Stats {
	n := &c.core.Counters
	s := Stats{
		Calls:   n.Calls.Load(),
		Grants:  n.Grants.Load(),
		Denials: n.Denials.Load(),
		Stale:   n.Stale.Load(),
		Late:    n.Late.Load(),
		Waiting: n.Waiting.Load(),
		Errors:  n.Errors.Load(),
	}
	if f := n.LastFailure.Load(); f != nil {
		s.LastError, s.LastErrorAt = f.Err, f.At
	}
	return s
}
