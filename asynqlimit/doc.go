// Package asynqlimit keeps the jobs of an asynq.Server that somebody already runs
// within the limits of config.yaml:
//
//	limits, err := asynqlimit.New(rdb, cfg, asynqlimit.Options{})
//	srv := asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(theirConfig))
//	err = limits.Serve(ctx, srv, mux) // in place of srv.Run(mux)
//
// The ErrorHandler, RetryDelayFunc, IsFailure, logger, mux and middleware stay the
// program's own, and see real failures only.
//
// # What becomes of a job
//
// A handler is called when all limits of its job have a permit. A job whose turn
// is near waits in the room, beside the handlers that run. One whose turn is far
// parks: it waits in asynq's retry set, in a line for the limit that refused it,
// and the processes that serve its queue bring it back when its permits come due.
// It keeps its id, its retries, its unique lock and its place, also on its last
// attempt. A job leaves its queue in three ways only: its handler ended, its
// handler failed as often as its producer allowed, or an operator did it. What
// cannot run as things stand waits in a line of its own, and goes on when that is
// mended: see BlockedError.
//
// # Layout
//
// asynq runs its server-side scripts by the Redis client that it is given. That
// is the seam: file client.go sees the scripts that take tasks from queues and end
// their attempts, and puts ours in their place.
//
//	client.go    the Redis client that asynq is given
//	intake.go    owns what was taken from queues, until asynq has it
//	gate.go      owns slots and room: who may be taken from a queue, and who runs
//	attempts.go  owns the attempts of this process: what becomes of a task
//	refusal.go   for how long an API may tell a job to try later
//	phase.go     pure: what becomes of a task when its attempt ends
//	attempt.go   the middleware: one attempt, from its dequeue to its end
//	permits.go   its permits: ask, wait in the room, get a slot, go
//	slots.go     its slots of limits in flight; leased.go: the handler that has them
//	orders.go    jobs of a key that run one at a time, in order
//	decide.go    pure: ask or park, how long to wait, how much to call
//	caller.go    brings tasks back from their lines; owns, with known.go and pace.go,
//	             what is known of lines and of how fast their limiters serve them
//	dryrun.go    asks limits with dry_run, beside the jobs
//	probe.go     pure: how many jobs to try that could not run
//	room.go      owns the lists of who waits here, for the case that we are killed
//	view.go      what a process shows of itself: its metrics and its page
//
// Which limits a task has is package plan's. The lines, their keys and scripts,
// and whatever is known about asynq's own, are package line's. What people read of limits
// and jobs is package jobview's, which decides nothing.
package asynqlimit
