// Package operate is for operators of the limiters in a Redis: it tells which limiters there are
// and how they stand over all processes, and keeps configuration files from changing them.
//
//	fleet := operate.NewFleet(rdb)
//	for l, err := range fleet.Limiters(ctx, "stripe:*") { ... } // names, rates, pauses, pins
//	usages, err := fleet.Inspect(ctx, "stripe:eu", "stripe:us") // permits used, reserved, available
//	err = fleet.Pin(ctx, "stripe:eu")                           // workers that start leave its rate alone
//
// A [Fleet] takes part in no limit: it asks for no permits and stands in no line. A program that
// changes rates, pauses or deletes needs a [throttle.Limiter].
package operate
