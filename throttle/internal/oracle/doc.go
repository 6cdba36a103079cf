// Package oracle judges what a throttle did by what was promised, and by nothing
// else: it knows no script, no client, no Redis and no clock. Tests hand it
// limits, logs and moments as plain values.
//
//   - Exact: no window holds more than its limit, wherever it begins: Limit.Excess.
//   - Busy: a place comes no later than it must: Earliest, Latest.
//   - In order: places of one queue are in the order of its requests: InOrder.
//   - Nothing leaks: a call adds to a log what it granted, takes out what was given
//     back, and leaves the rest as it was: Log.TakeBack, Log.Release, Limit.Kept.
//
// All times are microseconds of one clock.
package oracle
