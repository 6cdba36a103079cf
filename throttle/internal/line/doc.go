// Package line is the line of those who wait for one limit, or for several at
// once, in one process: what is asked of Redis and when, who has which place, and
// when its permits are handed out.
//
// It is a state machine. What happens comes in as an Event, with the time; what is
// to be done about it comes out as Actions. It makes no call, reads no clock, has
// no lock, goroutine or timer, and the same events bring about the same actions:
// package driver does the rest.
//
// A Waiter goes through these states:
//
//	queued    in front or waiting; asked for by the next call whose time has come
//	asked     in the call under way
//	placed    has a place in the log, and waits for its turn
//	unsure    its turn has come, and the configuration must be looked at
//	done      has its permits, or was told no
//	gone      its caller has left
package line
