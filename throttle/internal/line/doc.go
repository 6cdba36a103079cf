// Package line is the line of those who wait in one process for the permits of one limit, or
// of several limits at once. It decides what to ask Redis and when, who gets which grant,
// and when the permits of a grant are handed out.
//
// It is a state machine. What happens comes in as an Event, with the time. What to do about
// it goes out as Actions. The package makes no call, reads no clock, and has no lock,
// goroutine or timer. The same events lead to the same actions. Package driver does the
// rest.
//
// A Waiter goes through these states:
//
//	queued    in front or waiting; the next call that is due asks for it
//	asked     in the call under way
//	granted   has a grant in the log, and waits until its permits are due
//	unsure    its permits are due, but the configuration must be checked first
//	done      has its permits, or was told that it gets none
//	gone      its caller has left
package line
