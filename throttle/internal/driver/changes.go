package driver

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/throttle/internal/line"
)

const (
	// ChangesChannel is where the scripts announce the name of a limiter whose
	// configuration they have changed.
	ChangesChannel = "jobthrottle:changes"
	// releasesChannel is where they announce a limiter whose permits went back while
	// reservations lie ahead.
	releasesChannel = "jobthrottle:releases"
	// listenTimeout is how long the channel may be silent before the connection is tested.
	listenTimeout = 5 * time.Second
	// listenAgain is how long after a subscription was lost the next is tried.
	listenAgain = time.Second
)

var channels = []string{ChangesChannel, releasesChannel}

// subscriber is an interface that most Scripters of go-redis also implement.
type subscriber interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// changes hears from Redis that configurations have changed, so that waiters who have long to
// wait need not check so often, and that permits went back. It is only a hint: a change
// that is not heard is found by the next check, and nobody acts on a configuration that was
// not confirmed.
type changes struct {
	begun atomic.Bool
	heard atomic.Bool // the subscription is up
}

// listen begins to hear of changes, unless that has begun or rdb cannot subscribe.
func (c *Client) listen() {
	s, ok := c.Redis.(subscriber)
	if !ok || !c.changes.begun.CompareAndSwap(false, true) {
		return
	}
	c.wg.Go(func() {
		for c.ctx.Err() == nil {
			err := c.hear(s.Subscribe(c.ctx, channels...))
			if c.changes.heard.Swap(false) && errors.Is(err, redis.ErrClosed) {
				for _, q := range c.allQueues() {
					q.happens(line.Doubt) // those who wait ask, and are told so
				}
			}
			pause, cancel := context.WithTimeout(c.ctx, listenAgain)
			<-pause.Done()
			cancel()
		}
	})
}

// hear passes on what a subscription brings until it breaks, and returns why it did.
func (c *Client) hear(ps *redis.PubSub) error {
	stop := context.AfterFunc(c.ctx, func() { _ = ps.Close() })
	defer func() {
		if stop() {
			_ = ps.Close()
		}
	}()
	tested := false
	for {
		msg, err := ps.ReceiveTimeout(c.ctx, listenTimeout)
		switch msg := msg.(type) {
		case *redis.Subscription:
			if msg.Count == len(channels) {
				c.changes.heard.Store(true)
				for _, q := range c.allQueues() {
					q.happens(line.Freed) // permits may have gone back unheard
				}
			}
		case *redis.Message:
			if msg.Channel == releasesChannel {
				c.Released(msg.Payload)
			} else {
				c.Changed(msg.Payload)
			}
		}
		if err == nil {
			tested = false
			continue
		}
		if tested {
			return err
		}
		if err := ps.Ping(c.ctx); err != nil {
			return err
		}
		tested = true
	}
}

// Hears reports whether the client hears of changes as they are announced.
func (c *Client) Hears() bool { return c.changes.heard.Load() }

// Listen begins to hear of changes, unless that has begun or Redis cannot tell.
func (c *Client) Listen() { c.listen() }

// Changed has the waiters of every line that has the limiter ask again.
func (c *Client) Changed(name string) {
	c.each(name, line.Doubt)
	c.tell(name)
}

// Released lets the waiters of every line that has the limiter get what went back.
func (c *Client) Released(name string) {
	c.each(name, line.Freed)
	c.tell(name)
}

func (c *Client) tell(name string) {
	if c.Heard != nil {
		c.Heard(name)
	}
}
