package asynqlimit

import (
	"context"
	"errors"
	"fmt"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// takes are what a job has taken of one limiter, oldest first.
type takes []*take

// take is permits of one limiter in a reservation: of its member number member, of members in
// all.
type take struct {
	permits         int64
	of              *throttle.Reservation
	member, members int
}

// sum is how many permits the job has of the limiter.
func (t takes) sum() (n int64) {
	for _, of := range t {
		n += of.permits
	}
	return n
}

// release gives permits back. The limit takes back those that are young enough.
func (t *take) release(ctx context.Context, n int64) error {
	t.permits -= n // whatever the result: they must not be given back twice
	ns := make([]int64, t.members)
	ns[t.member] = n
	return t.of.ReleaseEach(ctx, ns...)
}

// giveBack releases what was taken beyond the cost, the oldest first.
func (j *job) giveBack(ctx context.Context, of []bool, cost int64) error {
	var errs []error
	for i := range j.limiter {
		if !of[i] {
			continue
		}
		over := j.taken[i].sum() - cost
		for _, t := range j.taken[i] {
			n := min(over, t.permits)
			if n <= 0 {
				continue
			}
			over -= n
			if err := t.release(ctx, n); err != nil {
				errs = append(errs, err)
				continue
			}
			j.countsOf(i).returned.Add(n)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("settle: %w", err)
	}
	return nil
}
