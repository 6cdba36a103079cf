package redisson

import "time"

// Load is threads that acquire in a loop.
type Load struct {
	Limiter string
	Costs   []int64       // a thread for each, which acquires so many permits at a time
	Clients int           // Redisson clients, each with its own id and connections, among which the threads are dealt out in turn; zero means one
	For     time.Duration // nobody asks, or waits, for longer: the last of each thread's acquires may end with nothing
}

// Grant is one acquire that a thread of a Load was granted.
type Grant struct {
	Thread int   // which of Load.Costs
	Asked  int64 // when it asked, and
	At     int64 // when it had its permits: nanoseconds of CLOCK_MONOTONIC, which is one for all processes of a machine
}

// Connect makes clients until there are so many, for the Loads to come.
func (p *Peer) Connect(clients int) error {
	_, err := p.do(command{Command: "connect", Clients: clients})
	return err
}

// Disconnect closes all clients but the first, and with them some 25 connections each.
func (p *Peer) Disconnect() error {
	_, err := p.do(command{Command: "disconnect"})
	return err
}

// Load runs the threads on a limiter that has a rate, and returns what they
// got, in the order of At. Clients that are missing are made first, and stay.
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
