// Package throttle holds a fleet of processes to the rate limits that they
// share through Redis.
//
// A limit is so many permits in any stretch of an interval, wherever it begins:
// 100 a second means that no second ever has 101, whatever the number of
// processes. Whoever wants to use one asks for it, waits its turn, and uses it
// at once:
//
//	client, err := throttle.New(rdb, throttle.Options{}) // one for the process
//	...
//	api, err := client.LimiterWithRate("api", throttle.Rate{Permits: 100, Interval: time.Second})
//	...
//	err = api.Acquire(ctx, 1) // returns when the request may be sent
//
// # Which call
//
//   - Acquire waits as long as ctx allows. With a deadline it is told early: a
//     turn that comes too late is ErrExceedsDeadline, without the wait.
//   - TryAcquire does not wait, TryAcquireFor up to a time. "No" is false, and
//     no error: an error means that nothing was decided.
//   - Reserve returns a reservation that says how long it is until its turn, so that
//     the caller can do something else until then, or cancel it.
//   - A Group does these for several limits at once: 100 a second for the fleet
//     and 10 for this account, in one step, all or none. Asking one limiter
//     after the other would let the first permit age while the second is waited
//     for.
//   - Limiter.For asks in the name of a tenant: those of your customers who wait
//     share the limit by weight, and one who asks for much does not keep the others.
//   - Release gives back what was not used. Pause stops a limit for everybody:
//     the API said Retry-After.
//
// Packages below this one have the rest: httplimit does all that for an
// http.Client, operate lists and inspects limiters for those who look after them,
// and keeps configuration files from changing them, and replicas has grants
// outlive the death of a master of Redis.
//
// # What is promised
//
// Exact: the log of what was granted is in Redis, one script decides, and the
// clock is Redis's alone. A permit is worth something for half of the limit's
// guard (1 % of the interval, 3 to 50 ms, unless Rate.Guard says otherwise)
// after Acquire returned: permits count for the interval and the guard, so that
// what is sent that much later still keeps the limit. What comes too late in
// this process, because it stood still, is exchanged for another turn.
//
// In turn: callers have their turns in the order in which they asked, those of
// other processes included, and a request for many permits is not overtaken for
// ever by those for few. Reservations lie no further ahead than an interval, or
// a second, and twice what a request itself takes; beyond that processes take turns.
//
// Cheap: everybody in a process who waits for the same limiter asks in one
// call, and nobody polls. So make one Client for a process, and get a Limiter by
// its name as often as you like.
//
// Changes reach everybody: SetRate, UpdateRate, Pause and Delete stop waiters of
// all processes within 100 ms and a round trip to Redis.
//
// Nothing is granted without Redis. While it is away Acquire keeps its place in
// the process's queue, until ctx ends; TryAcquire returns an error, within
// seconds also if Redis stands still.
//
// # Errors
//
// Errors that concern a limiter are an *Error, which names it, and wrap one of
// this package's errors, that of ctx, or that of Redis. All methods of Client,
// Limiter and Group may be called concurrently.
//
// The keys and bytes in Redis are those of Redisson's RRateLimiter, so that
// programs in Java can share a limit.
package throttle
