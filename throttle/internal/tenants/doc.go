// Package tenants has those who share a limit by tenant wait for their turn: start-time
// fair queueing by tenant, over all processes.
//
// The limiter's own line (package line) takes places in the log, as far ahead as an
// interval. Nobody could go before those who have one. So a request that asks for a
// tenant waits here first, in a line of its tenant, and goes on to the limiter's line
// when its turn is about to come: when what it asks for is due within soon, which is
// some tens of ms and two round trips to Redis.
//
// Redis has the tags of the tenants and what each process tells of those who wait in
// it (tenants.lua). Each process deals what there is room for soon among all of them
// (package fair), and lets its own part of that go on. That two processes deal by what
// one of them has changed in between does no harm: the limit is the log's to keep, and
// the tags make good what one tenant got too soon.
//
// Line decides, and has no clock, lock or I/O. Keeper has the lines of a Client, one
// goroutine for each in which somebody waits, and makes their calls.
package tenants
