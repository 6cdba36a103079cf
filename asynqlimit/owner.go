package asynqlimit

import (
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// owner is the server that has a client. A dequeue does not say which server it is from, so a client gives tasks only if the
// server that Serve runs has it, and no other.
type owner struct {
	served atomic.Bool  // Serve runs it
	first  atomic.Value // the first server that showed itself, as asynq names it: see line.Servers
	shared atomic.Bool  // several servers have the client
}

// serve notes that Serve is about to start the server that has the client.
func (o *owner) serve() {
	o.served.Store(true)
	if o.first.Load() != nil {
		o.shared.Store(true)
	}
}

// shows notes that a server that has the client shows itself.
func (o *owner) shows(server any) {
	if !o.first.CompareAndSwap(nil, server) && o.first.Load() != server {
		o.shared.Store(true)
	}
}

func (o *owner) takes() bool { return o.served.Load() && !o.shared.Load() }

// refuse is a dequeue that gets no task. The log says once why. Nothing is wrong if Serve has returned, and asynq has yet to
// notice.
func (c client) refuse() *redis.Cmd {
	switch {
	case !c.l.served.Load():
		c.l.forgotten.Do(func() {
			c.l.logger.Error("the server was started without its limits, and gets no jobs: call limits.Serve(ctx, srv, mux) in place of srv.Run(mux) or srv.Start(mux)", "server", c.l.name)
		})
	case !c.owner.takes():
		c.l.second.Do(func() {
			fault := "limits.Serve does not run this server, so it gets no jobs"
			if c.owner.shared.Load() {
				fault = "two servers have the same client from limits.Redis(), so neither gets jobs"
			}
			c.l.logger.Error(fault+": a second server needs limits of its own, from limits.Another", "server", c.l.name)
		})
	}
	return redis.NewCmdResult(nil, redis.Nil)
}
