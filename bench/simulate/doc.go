// Package simulate lets fleets of up to ten thousand Clients of package throttle wait for one
// limiter, under fake time (testing/synctest). It counts what the Clients get and what they ask
// of Redis. This writes the tables of docs/scaling.md, in some minutes:
//
//	JOBTHROTTLE_NIGHTLY=1 go test -count 1 -timeout 60m ./bench/simulate -write
//
// Clients and scripts are the real ones, and a redis-server runs the scripts. Only TIME inside
// them shows the fake time. The time of a call on the network and in Redis is fixed, so that
// the figures do not depend on the machine.
package simulate
