// Package oracle judges what a throttle did by what was promised, and by nothing else: it knows
// no script, no client, no Redis and no clock. Tests give it limits, logs and times as plain
// values.
//
//   - Exact: no window holds more than its limit, wherever it begins: Limit.Excess.
//   - Busy: a grant is due no later than it must be: Earliest, Latest.
//   - In order: the grants of one queue are in the order of its requests: InOrder.
//   - Nothing leaks: a call adds to a log what it granted, takes out what was given back, and
//     leaves everything else as it was: Log.TakeBack, Log.Release, Limit.Kept.
//
// All times are microseconds of one clock.
package oracle
