package operate

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// pipelined is how many calls of a script go to Redis in one round trip.
const pipelined = 200

// inspection is one call of inspect.lua: how a limiter stands for a client.
type inspection struct {
	name, client string
	clients      int // 1 if the clients seen lately are wanted
	usage        throttle.Usage
	err          error // there is no such limiter, or something went wrong
}

func (a *inspection) keys() []string {
	keys := script.KeysOf(a.name, a.client)
	return keys[:]
}

// read reads the reply, or the error that came instead.
func (a *inspection) read(reply any, err error) {
	found := false
	if err == nil {
		var s script.Standing[throttle.Rate]
		s, found, err = script.DecodeStanding[throttle.Rate](reply)
		a.usage = throttle.Usage(s)
	}
	switch {
	case err != nil:
		a.err = failed(a.name, err)
	case !found:
		a.err = failed(a.name, throttle.ErrNotInitialized)
	}
}

// absent reports whether there is no such limiter.
func (a *inspection) absent() bool { return errors.Is(a.err, throttle.ErrNotInitialized) }

// spoilt returns the error of a limiter whose configuration makes no sense, or whose keys hold something else.
func (a *inspection) spoilt() (*throttle.Error, bool) {
	if !errors.Is(a.err, throttle.ErrInvalidRate) && !errors.Is(a.err, throttle.ErrWrongType) {
		return nil, false
	}
	return errors.AsType[*throttle.Error](a.err)
}

// inspect makes the calls, many in one round trip. It returns the first error that concerns more
// than the limiter itself.
func (f *Fleet) inspect(ctx context.Context, asked []*inspection) error {
	for page := range slices.Chunk(asked, pipelined) {
		for left := page; len(left) > 0; {
			left = f.inspectPage(ctx, left)
		}
		for _, a := range page {
			if _, spoilt := a.spoilt(); a.err != nil && !spoilt && !a.absent() {
				return a.err
			}
		}
	}
	return nil
}

// inspectPage makes calls in one round trip, and returns those that still have to be made,
// because servers may not know the script. The first of those calls sends the whole script, which
// needs no permission to load scripts; after that its server knows it.
func (f *Fleet) inspectPage(ctx context.Context, asked []*inspection) (left []*inspection) {
	replies := make([]*redis.Cmd, len(asked))
	_, _ = f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each reply has its own error
		for i, a := range asked {
			replies[i] = script.Inspect.EvalSha(ctx, p, a.keys(), a.clients)
		}
		return nil
	})
	for i, cmd := range replies {
		reply, err := cmd.Result()
		switch {
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			left = append(left, asked[i])
		case err != nil:
			asked[i].read(nil, script.Classify(err))
		default:
			asked[i].read(reply, nil)
		}
	}
	if len(left) == 0 {
		return nil
	}
	reply, _, err := script.Call(ctx, f.rdb, script.Inspect, left[0].keys(), left[0].clients)
	left[0].read(reply, err)
	return left[1:]
}
