package operate

import (
	"context"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// FleetUsage is how a limiter stands over all processes. For a PerClient
// limiter Used, Reserved and Available are the sums over PerClient below and
// NextFree is the soonest of theirs: zero if there are none.
type FleetUsage struct {
	Name string
	throttle.Usage
	PerClient []ClientUsage // of PerClient limiters: the clients seen lately, the latest first
}

// ClientUsage is how one client stands with its own quota of a PerClient limiter.
type ClientUsage struct {
	ID        string // Client.ID
	Used      int64
	Reserved  int64
	Available int64
	NextFree  time.Duration
	Soon      int64
}

// SpoiltError says that somebody wrote into limiters what makes no sense there. Each of
// them is a throttle.ErrInvalidRate.
type SpoiltError struct{ Limiters []*throttle.Error }

func (e *SpoiltError) Error() string {
	said := make([]string, len(e.Limiters))
	for i, l := range e.Limiters {
		said[i] = l.Error()
	}
	return strings.Join(said, "; ")
}

// Unwrap makes errors.Is and errors.As see each of them.
func (e *SpoiltError) Unwrap() []error {
	errs := make([]error, len(e.Limiters))
	for i, l := range e.Limiters {
		errs[i] = l
	}
	return errs
}

// Inspect reads how limiters stand, in the order of the names. Those that are
// not there, or hold what is not a limiter's, are left out. Those whose
// configuration makes no sense are in a *SpoiltError, beside which the others are
// returned; with any other error there is nothing. Each look is a
// script call of its own, sent in pipelines: Redis serves others in between. A
// PerClient limiter costs one for each of its clients besides.
func (f *Fleet) Inspect(ctx context.Context, names ...string) ([]FleetUsage, error) {
	asked := make([]*inspection, 0, len(names))
	for _, name := range names {
		if checkName(name) == nil {
			asked = append(asked, &inspection{name: name})
		}
	}
	if err := f.inspect(ctx, asked); err != nil {
		return nil, err
	}
	var spoilt SpoiltError
	found := make([]FleetUsage, 0, len(asked))
	var clients []*inspection
	for _, a := range asked {
		if one, ok := a.spoilt(); ok {
			spoilt.Limiters = append(spoilt.Limiters, one)
		}
		if a.err != nil {
			continue
		}
		found = append(found, FleetUsage{Name: a.name, Usage: a.usage})
		if a.usage.Rate.Type == throttle.PerClient {
			for _, id := range a.usage.Clients {
				clients = append(clients, &inspection{name: a.name, client: id})
			}
		}
	}
	if err := f.inspect(ctx, clients); err != nil {
		return nil, err
	}
	for i := range found {
		if u := &found[i]; u.Rate.Type == throttle.PerClient {
			own := clients[:len(u.Clients)]
			clients = clients[len(u.Clients):]
			u.add(own)
		}
	}
	if len(spoilt.Limiters) > 0 {
		return found, &spoilt
	}
	return found, nil
}

// add sums up what the clients have of a PerClient limiter.
func (u *FleetUsage) add(clients []*inspection) {
	u.Used, u.Reserved, u.Available, u.Soon, u.NextFree = 0, 0, 0, 0, 0
	for _, c := range clients {
		if c.err != nil {
			continue
		}
		if len(u.PerClient) == 0 || c.usage.NextFree < u.NextFree {
			u.NextFree = c.usage.NextFree
		}
		u.Used, u.Reserved = u.Used+c.usage.Used, u.Reserved+c.usage.Reserved
		u.Available, u.Soon = u.Available+c.usage.Available, u.Soon+c.usage.Soon
		u.PerClient = append(u.PerClient, ClientUsage{
			ID: c.client, Used: c.usage.Used, Reserved: c.usage.Reserved, Available: c.usage.Available, NextFree: c.usage.NextFree, Soon: c.usage.Soon,
		})
	}
}

// InspectClient reads how a limiter stands for the client of that Client.ID, in
// one script call: the figures of a PerClient limiter are its own, those of any
// other are everybody's. A client that nobody has seen has used nothing.
//
// A limiter that is not there is throttle.ErrNotInitialized, one whose keys hold
// something else throttle.ErrWrongType, and a name that none can have
// throttle.ErrInvalidName.
func (f *Fleet) InspectClient(ctx context.Context, client, name string) (throttle.Usage, error) {
	if err := checkName(name); err != nil {
		return throttle.Usage{}, err
	}
	a := inspection{name: name, client: client}
	reply, _, err := script.Call(ctx, f.rdb, script.Inspect, a.keys())
	a.read(reply, err)
	return a.usage, a.err
}
