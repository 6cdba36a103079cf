package throttle

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// FleetUsage is how a limiter stands over all processes. For a PerClient
// limiter Used, Reserved and Available are the sums over PerClient below and
// NextFree is the soonest of theirs: zero if there are none.
type FleetUsage struct {
	Name string
	Usage
	PerClient []ClientUsage // of PerClient limiters: the clients seen lately, the latest first
}

// ClientUsage is how one client stands with its own quota of a PerClient limiter.
type ClientUsage struct {
	ID        string // Client.ID
	Used      int64
	Reserved  int64
	Available int64
	NextFree  time.Duration
}

// Inspect reads how limiters stand, in the order of the names. Those that are
// not there, or hold what is not a limiter's, are left out. Each look is a
// script call of its own, sent in pipelines: Redis serves others in between.
func (f *Fleet) Inspect(ctx context.Context, names ...string) ([]FleetUsage, error) {
	asked := make([]inspection, 0, len(names))
	for _, name := range names {
		if checkName(name) == nil {
			asked = append(asked, inspection{name: name})
		}
	}
	if err := f.inspect(ctx, asked); err != nil {
		return nil, err
	}
	found := make([]FleetUsage, 0, len(asked))
	var clients []inspection
	for _, a := range asked {
		if !a.found {
			continue
		}
		found = append(found, FleetUsage{Name: a.name, Usage: a.usage})
		if a.usage.Rate.Type == PerClient {
			for _, id := range a.usage.Clients {
				clients = append(clients, inspection{name: a.name, client: id})
			}
		}
	}
	if err := f.inspect(ctx, clients); err != nil {
		return nil, err
	}
	for i := range found {
		if u := &found[i]; u.Rate.Type == PerClient {
			own := clients[:len(u.Clients)]
			clients = clients[len(u.Clients):]
			u.add(own)
		}
	}
	return found, nil
}

// add sums up what the clients have of a PerClient limiter.
func (u *FleetUsage) add(clients []inspection) {
	u.Used, u.Reserved, u.Available, u.NextFree = 0, 0, 0, 0
	for _, c := range clients {
		if !c.found {
			continue
		}
		if len(u.PerClient) == 0 || c.usage.NextFree < u.NextFree {
			u.NextFree = c.usage.NextFree
		}
		u.Used, u.Reserved, u.Available = u.Used+c.usage.Used, u.Reserved+c.usage.Reserved, u.Available+c.usage.Available
		u.PerClient = append(u.PerClient, ClientUsage{
			ID: c.client, Used: c.usage.Used, Reserved: c.usage.Reserved, Available: c.usage.Available, NextFree: c.usage.NextFree,
		})
	}
}

// inspection is one call of inspect.lua: how a limiter stands for a client.
type inspection struct {
	name, client string
	found        bool
	usage        Usage
}

// inspect makes the calls, many in one round trip.
func (f *Fleet) inspect(ctx context.Context, asked []inspection) error {
	for len(asked) > 0 {
		n := min(len(asked), pipelined)
		err := f.inspectPage(ctx, asked[:n])
		if err != nil && script.Says(errors.Unwrap(err), "NOSCRIPT") {
			if err = script.Inspect.Load(ctx, f.rdb).Err(); err == nil {
				err = f.inspectPage(ctx, asked[:n])
			}
		}
		if err != nil {
			return err
		}
		asked = asked[n:]
	}
	return nil
}

func (f *Fleet) inspectPage(ctx context.Context, asked []inspection) error {
	replies := make([]*redis.Cmd, len(asked))
	_, _ = f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each reply has its own error
		for i, a := range asked {
			keys := script.KeysOf(a.name, a.client)
			replies[i] = script.Inspect.EvalSha(ctx, p, keys[:])
		}
		return nil
	})
	for i, cmd := range replies {
		reply, err := cmd.Result()
		if err != nil {
			if err = script.Classify(err); errors.Is(err, ErrWrongType) {
				continue
			}
			return &Error{Limiter: asked[i].name, Err: err}
		}
		standing, found, err := script.DecodeStanding(reply)
		if err != nil {
			return &Error{Limiter: asked[i].name, Err: err}
		}
		asked[i].usage, asked[i].found = usageOf(&standing), found
	}
	return nil
}
