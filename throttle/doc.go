// Package throttle holds a fleet of processes to the rate limits that they
// share through Redis.
//
// A limit is a number of permits in any stretch of time as long as its interval, wherever the
// stretch begins: 100 a second means that no second ever has 101, whatever the number of
// processes. A caller asks for permits, waits until it gets them, and uses them at once:
//
//	client, err := throttle.New(rdb, throttle.Options{}) // one for the process
//	...
//	api, err := client.LimiterWithRate("api", throttle.Rate{Permits: 100, Interval: time.Second})
//	...
//	err = api.Acquire(ctx, 1) // returns when the request may be sent
//
// # Which call
//
//   - [Limiter.Acquire] waits as long as ctx allows. If ctx has a deadline, it fails early: when
//     the permits would come too late, it returns [ErrExceedsDeadline] without waiting.
//   - [Limiter.TryAcquire] does not wait, [Limiter.TryAcquireFor] waits up to a timeout. "No" is
//     false, not an error: an error means that nothing was decided.
//   - [Limiter.Reserve] returns a [Reservation] that says how long it is until its permits are
//     due, so that the caller can do something else until then, or cancel it.
//   - A [Group] does these for several limits at once: 100 a second for the fleet and 10 for this
//     account, in one step, all or none. If you asked one limiter after the other, the first
//     permit would age while you wait for the second.
//   - [Limiter.For] asks in the name of a tenant: your customers that wait share the limit by
//     weight, and one that asks for much does not keep the others from their permits.
//   - [Limiter.Release] gives back what was not used. [Limiter.Pause] stops a limit for
//     everybody: the API said Retry-After.
//
// There are two more kinds of limits. [Limiter.SetAdapt] lets a limiter find how much its API
// accepts. An [InFlight] limits how many run at a time, over all processes: [InFlight.Acquire]
// returns a [Lease] of a slot.
//
// Packages below this one have the rest. httplimit does all that for an http.Client. operate is
// for operators: it lists and inspects limiters, and keeps configuration files from changing
// them. replicas makes grants survive the death of a Redis master.
//
// # What is promised
//
// Exact: the log of grants is in Redis, one script decides, and only Redis's clock counts. A
// permit counts for the interval and the guard, which [Rate.Guard] sets. After Acquire returns, at
// least a quarter of the guard is left for the request to arrive. [Stats].Late counts permits for
// which less is left, because Redis is too far away. If a permit is too old because this process
// stood still, it is exchanged for a later one.
//
// In order: callers are served in the order in which they asked, callers of other processes
// included, and requests for few permits do not overtake a request for many permits for ever. No
// reservation lies further ahead than the horizon. The horizon is the interval (at least 1 s)
// plus twice the time that the limit needs to give the request's permits. Callers who would
// come later wait in their process; processes that compete have equal shares.
//
// Cheap: all callers in a process that wait for the same limiter ask in one call, and nobody
// polls. So make one [Client] for a process, and get a [Limiter] by its name as often as you
// like.
//
// Changes reach everybody: [Limiter.SetRate], [Limiter.UpdateRate], Pause and [Limiter.Delete]
// stop waiters of all processes within 100 ms and a round trip to Redis.
//
// Nothing is granted without Redis. While it is away, Acquire keeps its position in the process's
// line until ctx ends. TryAcquire returns an error within seconds, also if Redis stands still.
//
// # Errors
//
// An error that concerns a limiter is an [*Error], which names it, and wraps one of this
// package's errors, that of ctx, or that of Redis. All methods of Client, Limiter and Group may
// be called concurrently.
//
// The keys and bytes in Redis are those of Redisson's RRateLimiter, so that
// programs in Java can share a limit.
package throttle
