// Package tenants makes requests wait until their tenant is next, if tenants share a limit:
// start-time fair queueing by tenant, over all processes.
//
// The limiter's own line (package line) reserves permits in the log as far ahead as an interval.
// Nobody could go before those who have a reservation. So a request in the name of a tenant waits
// here first, in a line of its tenant. It goes on to the limiter's line when its permits are
// nearly due: when what it asks for is due within soon, which is some tens of ms and two round
// trips to Redis.
//
// Redis has the tags of the tenants and what each process tells of those who wait in it
// (tenants.lua). Each process deals what there is room for soon among all of them (package fair),
// and lets its own part of that go on. Two processes may deal with different knowledge, because
// one of them has changed something in between. That does no harm: the log keeps the limit, and
// the tags compensate for what one tenant got too soon.
//
// Line decides, and has no clock, lock or I/O. Keeper has the lines of a Client and makes their
// calls, with one goroutine for each line in which somebody waits.
package tenants
