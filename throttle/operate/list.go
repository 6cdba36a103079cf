package operate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/refusal"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// scanPage is how many keys one SCAN visits: a fraction of a millisecond of Redis's time.
const scanPage = 1000

// Listed is a limiter in a list: its configuration without its usage. [Fleet.Inspect] has the
// usage, for which it has to read the log.
type Listed struct {
	Name   string
	Rate   throttle.Rate
	Paused time.Duration // how long a pause still lasts
	Pinned bool
	Err    error // throttle.ErrInvalidRate: somebody wrote a configuration that makes no sense, and only the name is known
}

// Limiters finds the limiters whose names match a pattern, in the syntax of KEYS: "" or "*" for
// all, "stripe-account:*" for those of one keyed limit. They come in no particular order. An
// error ends the sequence, except an error that concerns one limiter alone: that is in its Err.
//
// Redis serves others all the while: it is asked for a page of keys at a time, on a Cluster from
// every master. A limiter that exists throughout is found, unless its slot moves or its server
// fails over meanwhile. It may be found twice while Redis rehashes or slots move.
func (f *Fleet) Limiters(ctx context.Context, match string) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		err := f.scan(ctx, match, func(page []Listed, _ []string) bool {
			for _, l := range page {
				if !yield(l, nil) {
					return false
				}
			}
			return true
		})
		if err != nil {
			yield(Listed{}, err)
		}
	}
}

// scan visits the limiters, and the names of limits in flight, page by page, until visit returns
// false.
func (f *Fleet) scan(ctx context.Context, match string, visit func(page []Listed, inFlight []string) bool) error {
	nodes, err := f.nodes(ctx)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		cursor := uint64(0)
		for {
			var names []string
			if names, cursor, err = node.ScanType(ctx, cursor, match, scanPage, "hash").Result(); err != nil {
				return fmt.Errorf("operate: list limiters: %w", err)
			}
			if f.Skip != nil {
				names = slices.DeleteFunc(names, f.Skip)
			}
			page, inFlight, err := f.page(ctx, names)
			if err != nil {
				return fmt.Errorf("operate: list limiters: %w", err)
			}
			if !visit(page, inFlight) {
				return nil
			}
			if cursor == 0 {
				break
			}
		}
	}
	return nil
}

// cluster is what a *redis.ClusterClient has, and what embeds one.
type cluster interface {
	ForEachMaster(ctx context.Context, f func(context.Context, *redis.Client) error) error
}

// nodes are the servers that have keys of their own.
func (f *Fleet) nodes(ctx context.Context) ([]redis.UniversalClient, error) {
	switch rdb := f.rdb.(type) {
	case cluster:
		var mu sync.Mutex
		var masters []redis.UniversalClient
		err := rdb.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			masters = append(masters, master)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("operate: find the masters of the Redis Cluster: %w", err)
		}
		return masters, nil
	case *redis.Ring:
		return nil, errors.New("operate: a redis.Ring cannot be listed: want a Client or a ClusterClient")
	}
	return []redis.UniversalClient{f.rdb}, nil
}

// page reads the configurations of those hashes that are limiters, and finds those that are
// limits in flight.
func (f *Fleet) page(ctx context.Context, names []string) (page []Listed, inFlight []string, err error) {
	if len(names) == 0 {
		return nil, nil, nil
	}
	wanted := append(slices.Clone(script.ListedFields), "in_flight", "lease")
	var clock *redis.TimeCmd
	hashes := make([]*redis.SliceCmd, len(names))
	_, _ = f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each reply has its own error
		clock = p.Time(ctx)
		for i, name := range names {
			hashes[i] = p.HMGet(ctx, name, wanted...)
		}
		return nil
	})
	now, err := clock.Result()
	if err != nil {
		return nil, nil, err
	}
	page = make([]Listed, 0, len(names))
	for i, hash := range hashes {
		fields, err := hash.Result()
		switch {
		case err == nil:
			if l, ok := script.DecodeListed[throttle.Rate](names[i], fields, now); ok {
				if l.Err != nil {
					l.Err = failed(l.Name, l.Err)
				}
				page = append(page, Listed(l))
			} else if own := fields[len(script.ListedFields):]; fields[0] == nil && !slices.Contains(own, nil) && script.CheckName(names[i]) == "" {
				inFlight = append(inFlight, names[i])
			}
		case !refusal.Says(err, "WRONGTYPE"): // a key that has changed its type since
			return nil, nil, err
		}
	}
	return page, inFlight, nil
}
