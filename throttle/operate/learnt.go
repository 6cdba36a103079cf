package operate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// Learnt is what is known of a limiter that adapts ([throttle.Adapt]). Numbers of permits are for
// its Interval.
type Learnt struct {
	Start, Min, Max   int64     // as configured
	Limit             int64     // in force
	Accepted          int64     // what the API is known to accept, 0: nothing lately
	Most              int64     // what it accepts at most, 0: not known
	Told              int64     // what the API says its limit is, 0: it does not
	Cuts              int64     // how often the limit was cut,
	Taken, Refused    int64     // and permits accepted and refused, since it adapts
	OthersSeen        time.Time // when the API last refused far below what it had accepted: others use the quota, or its limit fell
	Recovers, Probing bool      // something was refused a short time ago; it tries more than Most
}

// Learnt reads what a limiter has learnt; false if it does not adapt.
func (f *Fleet) Learnt(ctx context.Context, name string) (Learnt, bool, error) {
	if err := checkName(name); err != nil {
		return Learnt{}, false, err
	}
	all, err := f.LearntOf(ctx, name)
	l, ok := all[name]
	return l, ok, err
}

// LearntOf is [Fleet.Learnt] for several limiters in one round trip: it returns those that adapt,
// by name. A key that holds something else is no limiter that adapts.
func (f *Fleet) LearntOf(ctx context.Context, names ...string) (map[string]Learnt, error) {
	fields := make([]*redis.StringCmd, len(names))
	_, _ = f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error { // each reply has its own error
		for i, name := range names {
			fields[i] = p.HGet(ctx, name, "adapt")
		}
		return nil
	})
	all := make(map[string]Learnt)
	for i, name := range names {
		field, err := fields[i].Result()
		if errors.Is(err, redis.Nil) {
			continue
		}
		if err != nil {
			if err = script.Classify(err); errors.Is(err, script.ErrWrongType) {
				continue
			}
			return nil, failed(name, err)
		}
		if l, ok := script.DecodeLearnt(field); ok {
			all[name] = learnt(l)
		}
	}
	return all, nil
}

func learnt(l script.Learnt) Learnt {
	return Learnt{
		Start: l.Start, Min: l.Min, Max: l.Max, Limit: l.Limit, Accepted: l.Lo, Most: l.Hi, Told: l.Told, Cuts: l.Cuts, Taken: l.Taken, Refused: l.Refused,
		OthersSeen: l.Others, Recovers: l.Event, Probing: l.Phase == 3,
	}
}

// Known is the bracket in a few words: what is known about what the API accepts.
func (l Learnt) Known() string {
	switch {
	case l.Most == 0 && l.Accepted == 0:
		return "nothing yet"
	case l.Most == 0:
		return fmt.Sprintf("at least %d", l.Accepted)
	case l.Accepted == 0 || l.Accepted > l.Most:
		return fmt.Sprintf("at most %d", l.Most)
	case l.Accepted == l.Most:
		return fmt.Sprint(l.Most)
	}
	return fmt.Sprintf("%d to %d", l.Accepted, l.Most)
}
