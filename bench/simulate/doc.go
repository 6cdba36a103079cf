// Package simulate lets fleets of up to ten thousand Clients of package throttle wait for one
// limiter, under fake time (testing/synctest). It counts what the Clients get and what they ask
// of Redis. This makes the table of docs/scaling.md:
//
//	JOBTHROTTLE_NIGHTLY=1 go test -v -count 1 -timeout 60m -run TestFleets ./bench/simulate
//
// Clients and scripts are the real ones, and a redis-server runs the scripts. Only TIME inside
// them shows the fake time. The time of a call on the network and in Redis is fixed, so that
// the figures do not depend on the machine.
package simulate
