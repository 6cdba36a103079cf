package asynqlimit

// phase is how far the attempt of a task has come. It only goes forward, except that a handler may wait and prepare in turn.
type phase int

const (
	taken    phase = iota // it was taken from its queue; asynq has not begun the attempt
	waits                 // it waits for its permits: its handler was not called, or has called Hold or Acquire
	prepares              // its handler runs, and has yet to call Acquire
	runs                  // its handler runs, with its permits or without limits
)

// fate is what becomes of a task when its attempt ends.
type fate int

const (
	open    fate = iota // the middleware has not decided it
	asynqs              // what asynq's own rules say: it is done, retried or archived
	parks               // it parks in a line, or alone
	returns             // it goes back to the head of its queue
)

// fateOf decides what becomes of a task when a wait for permits ends without them, or when asynq
// ends the attempt before the middleware does. While the task waits, nothing has failed: the task
// goes on waiting. Otherwise, once its handler has been called, asynq's own rules apply, with two
// exceptions: a process that drains gives a task back that asks for permits and cannot have them
// before the end, or that has yet to ask; and a handler without permits has not failed if only the
// throttle gave no answer. asynq's own rules also apply to an attempt that asynq has not begun,
// unless the process drains.
//
// err is why the wait ended, or nil if asynq gives the task back. over says that the task's own
// time is over, or that the task was cancelled.
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
