package redisson

import "time"

// Load is threads that acquire in a loop.
type Load struct {
	Limiter string
	Costs   []int64       // a thread for each, which acquires that many permits at a time
	Clients int           // Redisson clients, each with its own id and connections; threads are dealt out to them in turn; zero means one
	For     time.Duration // nobody asks or waits longer: the last acquire of each thread may get nothing
}

// Grant is an acquire that was granted to a thread of a Load.
type Grant struct {
	Thread int   // the index in Load.Costs
	Asked  int64 // when it asked, and
	At     int64 // when it got its permits: nanoseconds of CLOCK_MONOTONIC, which is the same for all processes of a machine
}

// Connect makes clients until there are that many, for later Loads.
func (p *Peer) Connect(clients int) error {
	_, err := p.do(command{Command: "connect", Clients: clients})
	return err
}

// Disconnect closes all clients except the first, each with about 25 connections.
func (p *Peer) Disconnect() error {
	_, err := p.do(command{Command: "disconnect"})
	return err
}

// Load runs the threads on a limiter that has a rate. It returns their grants, in the order of
// At. It first makes clients that are missing, and keeps them.
func (p *Peer) Load(l Load) ([]Grant, error) {
	r, err := p.do(command{Command: "load", Limiter: l.Limiter, Costs: l.Costs, Clients: l.Clients, Timeout: l.For.Milliseconds()})
	if err != nil {
		return nil, err
	}
	grants := make([]Grant, len(r.Grants))
	for i, g := range r.Grants {
		grants[i] = Grant{Thread: int(g[0]), Asked: g[1], At: g[2]}
	}
	return grants, nil
}
