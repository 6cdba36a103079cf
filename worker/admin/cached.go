package admin

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// sampleTimeout is how long a request waits at most for what is read for all.
const sampleTimeout = 5 * time.Second

// cached is a value of Redis that one request at a time reads, and that all see for a while. An error counts like a value:
// Redis is not asked more often because it does not answer.
type cached[T any] struct {
	read  func(context.Context) (T, error)
	lasts func(T) time.Duration // how long it may be shown

	reading   chan struct{} // holds one while a request has what follows
	value     T
	err       error
	until     time.Time   // how long it may be shown
	forgotten atomic.Bool // it is to be read again
}

func newCached[T any](read func(context.Context) (T, error), lasts func(T) time.Duration) *cached[T] {
	return &cached[T]{read: read, lasts: lasts, reading: make(chan struct{}, 1)}
}

// get returns the value, after a read by this request or another if it is too old. It waits no longer than ctx.
func (c *cached[T]) get(ctx context.Context) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	select {
	case c.reading <- struct{}{}:
		defer func() { <-c.reading }()
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("wait for another request that reads the same from Redis: %w", ctx.Err())
	}
	if again := c.forgotten.Swap(false); again || !time.Now().Before(c.until) {
		end, _ := ctx.Deadline()
		ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), end) // if the caller goes away, others get the result
		defer cancel()
		c.value, c.err = c.read(ctx)
		c.until = time.Now().Add(c.lasts(c.value))
	}
	return c.value, c.err
}

// forget has the value read again, because something was changed.
func (c *cached[T]) forget() { c.forgotten.Store(true) }

// always is for values that are as expensive to read whatever they are.
func always[T any](d time.Duration) func(T) time.Duration { return func(T) time.Duration { return d } }
