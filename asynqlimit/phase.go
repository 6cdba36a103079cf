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
// goes on waiting, in a line or in its queue. In the other phases asynq's own rules apply, with
// three exceptions:
//
//   - a process that drains gives back a task whose attempt asynq has not begun;
//   - a process that drains gives back a task whose handler has yet to ask for its permits, or asks
//     for further permits and cannot have them before the end;
//   - a task whose handler has yet to get permits parks if only the throttle gave no answer.
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
