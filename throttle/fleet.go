package throttle

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

const (
	// scanPage is how many keys one SCAN looks at: a fraction of a millisecond of Redis's time.
	scanPage = 1000
	// pipelined is how many calls of a script go to Redis in one round trip.
	pipelined = 200
)

// Fleet reads limiters for operators: which there are, and how they stand over
// all processes that use them. It belongs to none of those processes, holds no
// place in any queue and changes nothing. Its methods may be called
// concurrently.
type Fleet struct {
	// Skip, if not nil, tells keys that are no limiters although they hold
	// hashes, so that Limiters need not ask Redis for what is in them: the many
	// tasks of a job queue, say. Set it before the Fleet is used.
	Skip func(key string) bool

	rdb redis.UniversalClient
}

// NewFleet returns a Fleet of the limiters in rdb, which remains the caller's
// to close. A Client needs less of its connection: SCAN and pipelines are what
// only a redis.UniversalClient has.
func NewFleet(rdb redis.UniversalClient) *Fleet { return &Fleet{rdb: rdb} }

// Listed is a limiter as a list shows it: its configuration, without the
// usage, which costs a look at its log (Inspect).
type Listed struct {
	Name   string
	Rate   Rate
	Paused time.Duration // how long a pause still lasts
	Pinned bool
}

// Limiters finds the limiters whose names match a pattern as KEYS has them:
// "" or "*" for all, "stripe-account:*" for those of one keyed limit. They come
// in no order, and an error ends them.
//
// Redis serves others all the while: it is asked for a page of keys at a time,
// on a Cluster of every master. A limiter that is there throughout is found;
// one may be found twice while Redis rehashes or slots move.
func (f *Fleet) Limiters(ctx context.Context, match string) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		nodes, err := f.nodes(ctx)
		if err != nil {
			yield(Listed{}, err)
			return
		}
		for _, node := range nodes {
			cursor := uint64(0)
			for {
				var names []string
				if names, cursor, err = node.ScanType(ctx, cursor, match, scanPage, "hash").Result(); err != nil {
					yield(Listed{}, fmt.Errorf("throttle: list limiters: %w", err))
					return
				}
				if f.Skip != nil {
					names = slices.DeleteFunc(names, f.Skip)
				}
				page, err := f.page(ctx, names)
				if err != nil {
					yield(Listed{}, fmt.Errorf("throttle: list limiters: %w", err))
					return
				}
				for _, l := range page {
					if !yield(l, nil) {
						return
					}
				}
				if cursor == 0 {
					break
				}
			}
		}
	}
}

// nodes are the servers that have keys of their own.
func (f *Fleet) nodes(ctx context.Context) ([]redis.UniversalClient, error) {
	switch rdb := f.rdb.(type) {
	case *redis.ClusterClient:
		var mu sync.Mutex
		var masters []redis.UniversalClient
		err := rdb.ForEachMaster(ctx, func(_ context.Context, master *redis.Client) error {
			mu.Lock()
			defer mu.Unlock()
			masters = append(masters, master)
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("throttle: find the masters of the Redis Cluster: %w", err)
		}
		return masters, nil
	case *redis.Ring:
		return nil, errors.New("throttle: a redis.Ring cannot be listed: want a Client or a ClusterClient")
	}
	return []redis.UniversalClient{f.rdb}, nil
}

// page reads the configurations of those among the hashes that are limiters.
func (f *Fleet) page(ctx context.Context, names []string) ([]Listed, error) {
	if len(names) == 0 {
		return nil, nil
	}
	var clock *redis.TimeCmd
	hashes := make([]*redis.SliceCmd, len(names))
	_, _ = f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each reply has its own error
		clock = p.Time(ctx)
		for i, name := range names {
			hashes[i] = p.HMGet(ctx, name, "rate", "interval", "type", "keepAliveTime", "guard", "smooth", "window", "offset", "pause", "pinned")
		}
		return nil
	})
	now, err := clock.Result()
	if err != nil {
		return nil, err
	}
	page := make([]Listed, 0, len(names))
	for i, hash := range hashes {
		fields, err := hash.Result()
		switch {
		case err == nil:
			if l, ok := listed(names[i], fields, now); ok {
				page = append(page, l)
			}
		case !script.Says(err, "WRONGTYPE"): // a key that has become another's since
			return nil, err
		}
	}
	return page, nil
}

// listed reads the fields of a hash, as open in log.lua does; false if it is
// not a limiter's.
func listed(name string, fields []any, now time.Time) (Listed, bool) {
	number := func(i int) (int64, bool) {
		s, _ := fields[i].(string)
		n, err := strconv.ParseInt(s, 10, 64)
		return n, err == nil
	}
	us := func(i int) time.Duration {
		n, _ := number(i)
		return time.Duration(n) * time.Microsecond
	}
	permits, ok := number(0)
	interval, ok2 := number(1)
	if !ok || !ok2 || permits < 1 || interval < 1 || checkName(name) != nil {
		return Listed{}, false
	}
	r := Rate{Permits: permits, Interval: time.Duration(interval) * time.Millisecond, Guard: us(4), Offset: us(7)}
	if _, kept := number(4); !kept || r.Guard > r.Interval {
		r.Guard = r.DefaultGuard() // configured by a Redisson client
	}
	if r.Guard == 0 {
		r.Guard = -1 // none, where zero would read as the default
	}
	if n, _ := number(2); n == int64(PerClient) {
		r.Type = PerClient
	}
	keep, _ := number(3)
	r.KeepAlive = time.Duration(keep) * time.Millisecond
	smooth, _ := number(5)
	window, _ := number(6)
	r.Smooth, r.Window = smooth == 1, Window(window)
	pause, _ := number(8)
	pinned, _ := number(9)
	return Listed{Name: name, Rate: r, Paused: max(time.UnixMicro(pause).Sub(now), 0), Pinned: pinned == 1}, true
}

// DefaultGuard is the guard that a Rate of this Interval has if it sets none.
func (r Rate) DefaultGuard() time.Duration {
	r.Guard = 0
	return r.guard()
}
