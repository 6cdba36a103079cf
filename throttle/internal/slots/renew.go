package slots

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	// renewTogether: a lease is renewed sooner, by up to this part of its length (1/6), to go
	// with others.
	renewTogether = 6
	// renewMost is how many leases one script renews at most.
	renewMost = 500
	// renewAtOnce is how many scripts are under way at a time at most, if they do not go in a pipeline.
	renewAtOnce = 16
	// renewRetry is how soon a renewal that failed is tried again.
	renewRetry = 250 * time.Millisecond
)

// renewal is a call of renew.lua.
type renewal struct {
	limit  string
	leases []*Lease
}

func (r *renewal) keysAndArgs() (keys []string, args []any) {
	for _, l := range r.leases {
		args = append(args, l.id, l.fence)
	}
	return Limit{Name: r.limit}.keys(), args
}

// renew renews all leases of the process, until the Keeper is closed or there are none.
func (k *Keeper) renew() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		k.mu.Lock()
		if k.closed || len(k.leases) == 0 {
			k.renews = false
			k.mu.Unlock()
			return
		}
		now := time.Now()
		next := now.Add(time.Hour)
		var due []*Lease
		isDue := false
		for _, l := range k.leases {
			l.mu.Lock()
			if at := l.renewAt; now.Before(at) {
				next = earlier(next, at)
				if !now.Before(at.Add(-l.lasts / renewTogether)) {
					due = append(due, l)
				}
			} else {
				isDue = true
				due = append(due, l)
			}
			l.mu.Unlock()
		}
		k.renewNext = next
		k.mu.Unlock()
		if isDue {
			k.renewAll(due)
			continue
		}
		timer.Reset(time.Until(next))
		select {
		case <-timer.C:
		case <-k.renewNow:
		case <-k.ctx.Done():
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// renewAll renews leases: with one call for each limit, in one pipeline.
func (k *Keeper) renewAll(due []*Lease) {
	of := map[string]*renewal{}
	var calls []*renewal
	for _, l := range due {
		for _, name := range l.names {
			r := of[name]
			if r == nil || len(r.leases) >= renewMost {
				r = &renewal{limit: name}
				of[name], calls = r, append(calls, r)
			}
			r.leases = append(r.leases, l)
		}
	}
	left := map[*Lease]time.Duration{} // the shortest time that its limits say; -1: it is over
	failed := map[*Lease]bool{}
	sent := time.Now()
	for i, reply := range k.callAll(calls) {
		ms, err := []time.Duration(nil), reply.err
		if err == nil {
			ms, err = decodeRenewed(reply.value, len(calls[i].leases))
		}
		for n, l := range calls[i].leases {
			if err != nil {
				failed[l] = true
				continue
			}
			if had, is := left[l]; !is || ms[n] < had {
				left[l] = ms[n]
			}
		}
	}
	now := time.Now()
	for _, l := range due {
		lasts, told := left[l]
		switch {
		case told && lasts < 0:
			l.end(ErrEnded)
		case failed[l] || !told:
			l.mu.Lock()
			l.renewAt = now.Add(renewRetry)
			l.mu.Unlock()
		default:
			l.mu.Lock()
			l.lasts = lasts
			l.ends, l.renewAt = sent.Add(lasts-margin(lasts)), sent.Add(lasts/3)
			if !l.over {
				l.timer.Reset(time.Until(l.ends))
			}
			l.mu.Unlock()
		}
	}
}

type reply struct {
	value any
	err   error
}

// pipeliner is what most Scripters of go-redis also are.
type pipeliner interface {
	Pipelined(ctx context.Context, fn func(redis.Pipeliner) error) ([]redis.Cmder, error)
}

// renewWithin is how long a try to renew leases takes at most: a short lease must not be over because one connection
// is dead, or one server. The last try may take as long as the lease lasts.
func (k *Keeper) renewWithin(now time.Time) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	within := callLasts
	for _, l := range k.leases {
		l.mu.Lock()
		try, left := l.lasts/renewTogether, l.ends.Sub(now)
		if over := l.over; !over && left > 0 {
			if left < 2*try {
				try = left
			}
			within = min(within, try)
		}
		l.mu.Unlock()
	}
	return within
}

// callAll runs renew.lua for each call, in one pipeline if rdb has pipelines. If Redis does not
// know the script by its hash, it is sent again as a whole. If one server does not answer, the others' answers count:
// go-redis then also reports an error for commands that were answered.
func (k *Keeper) callAll(calls []*renewal) []reply {
	ctx, cancel := context.WithTimeout(k.ctx, k.renewWithin(time.Now()))
	defer cancel()
	replies := make([]reply, len(calls))
	again := make([]int, 0, len(calls))
	p, pipes := k.rdb.(pipeliner)
	if pipes && len(calls) > 1 {
		cmds := make([]*redis.Cmd, len(calls))
		_, _ = p.Pipelined(ctx, func(p redis.Pipeliner) error { // each reply has its own error
			for i, c := range calls {
				keys, args := c.keysAndArgs()
				cmds[i] = renewScript.EvalSha(ctx, p, keys, args...)
			}
			return nil
		})
		for i, cmd := range cmds {
			value, err := cmd.Result()
			if value != nil {
				err = nil
			}
			if replies[i] = (reply{value, err}); redis.HasErrorPrefix(err, "NOSCRIPT") {
				again = append(again, i)
			}
		}
	} else {
		for i := range calls {
			again = append(again, i)
		}
	}
	var all sync.WaitGroup
	for some := range slices.Chunk(again, max((len(again)+renewAtOnce-1)/renewAtOnce, 1)) {
		all.Go(func() {
			for _, i := range some {
				keys, args := calls[i].keysAndArgs()
				value, _, err := k.call(ctx, renewScript, keys, args...)
				replies[i] = reply{value, err}
			}
		})
	}
	all.Wait()
	return replies
}
