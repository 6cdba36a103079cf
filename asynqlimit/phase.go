package asynqlimit

// phase is how far the attempt of a task has come. It only goes on.
type phase int

const (
	taken    phase = iota // from its queue; asynq has not begun the attempt
	waits                 // for its permits: its handler was not called
	prepares              // its handler runs, and is yet to call Acquire
	runs                  // its handler runs, with its permits or without limits
)

// fate is what becomes of a task when its attempt ends.
type fate int

const (
	open    fate = iota // the middleware has not decided it
	asynqs              // what asynq's own rules say: it is done, retried or archived
	parks               // in a line, or alone
	returns             // to the head of its queue
)

// fateOf decides what becomes of a task when a wait for permits ends without
// them, or asynq ends the attempt before the middleware does. Until a handler has
// been called, nothing has failed: the task waits on. Once it has, asynq's own
// rules stand, with two exceptions: a process that drains gives back what asks for
// permits, or is yet to; and a handler that has none yet has not failed because
// the throttle gave no answer.
//
// The error is why the wait ended, nil if asynq gives the task back. Over says
// that the task's own time is, or that it was cancelled.
func fateOf(p phase, err error, over, draining bool) fate {
	switch {
	case p == taken && !draining, p == runs && (err == nil || !draining):
		return asynqs
	case draining:
		return returns
	case p == prepares && over:
		return asynqs
	}
	return parks
}
