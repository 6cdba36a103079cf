package admin

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// sampleTimeout is how long a read may take, and how long other requests wait for it at most.
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

// get returns the value, and reads it first if it is too old. If another request reads the value, get waits for it until ctx
// ends, but no longer than sampleTimeout. A read of its own goes on when ctx ends, because all requests get the result, also
// if that is an error.
func (c *cached[T]) get(ctx context.Context) (value T, err error) {
	waits, cancel := context.WithTimeout(ctx, sampleTimeout)
	defer cancel()
	late := func() (T, error) {
		return value, fmt.Errorf("wait for another request that reads the same from Redis: %w", waits.Err())
	}
	select {
	case c.reading <- struct{}{}:
		defer func() { <-c.reading }()
	case <-waits.Done():
		return late()
	}
	if c.forgotten.Load() || !time.Now().Before(c.until) {
		if waits.Err() != nil {
			return late()
		}
		c.forgotten.Store(false)
		reads, cancel := context.WithTimeout(context.WithoutCancel(ctx), sampleTimeout)
		defer cancel()
		c.value, c.err = c.read(reads)
		c.until = time.Now().Add(c.lasts(c.value))
	}
	return c.value, c.err
}

// forget has the value read again, because something was changed.
func (c *cached[T]) forget() { c.forgotten.Store(true) }
