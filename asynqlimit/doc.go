// Package asynqlimit keeps the jobs of an [asynq.Server] that somebody already runs within the
// limits of config.yaml:
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
// [Limits.Serve] runs the server. A handler is called when all limits of its job have given
// permits. A job whose permits are due soon waits in the room, beside the handlers that run. A
// job that has to wait longer parks: it waits in asynq's retry set, in a line for the limit that
// refused it, and the processes that serve its queue bring it back shortly before its permits are
// due. It keeps its id, its retries, its unique lock and its position in line, also on its last
// attempt.
// Waiting never ends a job: only its handler does, by success or by its last failure, its own
// [asynq.Deadline], or an operator. A job that cannot run as things stand waits in line with the jobs that have the same
// problem, and goes on when the cause is fixed: see [BlockedError].
package asynqlimit

// The files, for whoever changes them. asynq runs its server-side scripts through the Redis client that it is given. So
// client.go sees the scripts that take tasks from queues and end their attempts, and replaces them with ours.
//
// The API:
//
//	limits.go    Limits, Options and what Configure wraps; serve.go: one server, from its start to the end of its drain
//	errors.go    what handlers return and users get; settle.go, observe.go: what a handler may tell about its permits
//	stats.go     what Stats returns; view.go: what a process shows of itself, its metrics and its page
//
// What is taken from queues:
//
//	client.go    the Redis client that asynq is given; done.go: asynq's script for tasks that are done, at less cost
//	owner.go     which server has that client
//	intake.go    owns what was taken from queues, until asynq has it
//	sort.go      parks what has to queue behind others, before asynq has it; ahead.go: what stands before a task that comes now
//	gate.go      owns slots and room: which tasks are taken from a queue, and which run; polls.go, position.go: what it knows
//	room.go      owns the lists of tasks that wait here, in case this process is killed
//
// One attempt:
//
//	attempt.go   the middleware: from its dequeue to its end; needs.go: which limits its task has
//	permits.go   its permits: ask, wait in the room, get a slot, run (run.go); giveback.go: what goes back
//	slots.go     its slots of limits in flight; vacant.go: how many are free; leased.go: the handler that has them
//	behind.go    behind whom it queues for slots, and who of those that wait for them here leaves first
//	orders.go    jobs of a key that run one at a time, in order; flight.go: max_in_flight
//	progress.go  how far it has come, and what becomes of its task; phase.go, pure: the same when it ends
//	attempts.go  owns the attempts of this process, until asynq has ended them
//	refusal.go   for how long an API may tell a job to try later
//	stranded.go  leases, and tasks whose leases are over because Redis was away
//	dryrun.go    asks limits with dry_run, beside the jobs, and calls those in line for them; dryslots.go: limits
//	             in flight; span.go: its traces
//
// What is brought back:
//
//	decide.go    pure: ask or park, how long to wait, how much to call
//	caller.go    brings tasks back from their lines; visit.go: one line; budget.go: how many tasks to call
//	known.go     what is known of lines; pace.go: how fast their limiters serve them; pending.go, answers.go: who is on its way
//	own.go       which lines of PerClient limiters this process visits by itself, and when
//	shares.go    the lines of tenants that share a limit
//	blocked.go   what the caller visits of lines without a limiter; probe.go, pure: how many jobs to try that could not run
//
// What people hear: changes.go, events.go, log.go, present.go, tally.go, unserved.go.
//
// Which limits a task has is for package plan. The lines, their keys and scripts, and everything that is known about asynq's own,
// belong to package line. What people read about limits and jobs is in package jobview, which decides nothing.
