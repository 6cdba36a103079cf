package operate

import (
	"context"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// FleetUsage is how a limiter stands over all processes. Of a [throttle.PerClient] limiter, Used,
// Reserved, Available and Soon are the sums over PerClient below, and NextFree is the soonest of
// theirs. Later is not known. All are zero if there are none.
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

// SpoiltError says that somebody wrote into limiters what makes no sense there. Each of them
// wraps [throttle.ErrInvalidRate], or [throttle.ErrWrongType] if one of its keys holds something else.
type SpoiltError struct{ Limiters []*throttle.Error }

// Error says of each limiter what [throttle.Error] says of it.
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

// Inspect reads how limiters stand, in the order of the names. It leaves out limiters that do not
// exist. If the configuration of some limiters makes no sense, or their keys hold something else,
// the error is a [*SpoiltError] with these, and the others are returned with it. With any other
// error nothing is returned. Each limiter is a script call of its own, sent in pipelines: Redis
// serves others in between. A PerClient limiter takes one more call for each of its clients.
func (f *Fleet) Inspect(ctx context.Context, names ...string) ([]FleetUsage, error) {
	found, ferr := f.inspectAll(ctx, inspection{clients: 1}, names)
	var clients []*inspection
	for _, u := range found {
		if u.Rate.Type == throttle.PerClient {
			for _, id := range u.Clients {
				clients = append(clients, &inspection{name: u.Name, client: id})
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
	return found, ferr
}

// InspectFor is [Fleet.Inspect] for the client with that [throttle.Client.ID]: the figures of a PerClient limiter are
// that client's, and PerClient and Clients are empty. It takes one call for each limiter, however many clients there are.
func (f *Fleet) InspectFor(ctx context.Context, client string, names ...string) ([]FleetUsage, error) {
	return f.inspectAll(ctx, inspection{client: client}, names)
}

// inspectAll makes an inspection like that of each name.
func (f *Fleet) inspectAll(ctx context.Context, like inspection, names []string) ([]FleetUsage, error) {
	asked := make([]*inspection, 0, len(names))
	for _, name := range names {
		if checkName(name) == nil {
			one := like
			one.name = name
			asked = append(asked, &one)
		}
	}
	if err := f.inspect(ctx, asked); err != nil {
		return nil, err
	}
	var spoilt SpoiltError
	found := make([]FleetUsage, 0, len(asked))
	for _, a := range asked {
		if one, ok := a.spoilt(); ok {
			spoilt.Limiters = append(spoilt.Limiters, one)
		}
		if a.err == nil {
			found = append(found, FleetUsage{Name: a.name, Usage: a.usage})
		}
	}
	if len(spoilt.Limiters) > 0 {
		return found, &spoilt
	}
	return found, nil
}

// add sums up what the clients of a PerClient limiter have.
func (u *FleetUsage) add(clients []*inspection) {
	u.Used, u.Reserved, u.Available, u.Soon, u.NextFree, u.Later = 0, 0, 0, 0, 0, 0
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

// InspectClient reads how a limiter stands for the client with that [throttle.Client.ID], in one
// script call. The figures of a PerClient limiter are that client's, those of any other limiter
// are everybody's. A client that nobody has seen has used nothing.
//
// If there is no such limiter the error is [throttle.ErrNotInitialized], if its keys hold
// something else [throttle.ErrWrongType], and if no limiter can have the name
// [throttle.ErrInvalidName].
func (f *Fleet) InspectClient(ctx context.Context, client, name string) (throttle.Usage, error) {
	if err := checkName(name); err != nil {
		return throttle.Usage{}, err
	}
	a := inspection{name: name, client: client, clients: 1}
	reply, _, err := script.Call(ctx, f.rdb, script.Inspect, a.keys(), a.clients)
	a.read(reply, err)
	return a.usage, a.err
}
