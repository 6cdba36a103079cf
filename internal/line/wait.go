package line

import (
	"strconv"
	"strings"
	"time"
)

// A State is where a task's wait stands.
type State string

// The states of a Wait.
const (
	Parked  State = "p" // in line
	Called  State = "c" // on its way from the line to a process
	Back    State = "w" // on its way again: its process ended while it waited there
	Untried State = "q" // in its queue again: its process ended before it had asked for anything
	Arrived State = "a" // a process has it, or it has run since
)

// Near says whether the turn of a task that comes so is near: it was called, or waited
// in a process that ended.
func (s State) Near() bool { return s == Called || s == Back }

// Wait is how a task waits: the field jt of its hash.
type Wait struct {
	State   State
	Since   int64  // its first arrival, by Redis's clock, in microseconds after 1970
	Soonest int64  // before which nobody takes it from the line, in milliseconds after 1970
	Score   int64  // of the parked task, in asynq's retry set
	Cost    int64  // permits
	Refused int64  // when its API first told it to try later, in seconds after 1970, moved on by what it has waited for other things since; 0: never
	Line    string // the name of its line
}

// InLine is for how long a task was in line that was taken then, by Redis's clock, in
// microseconds after 1970: 0 if it was not in line, or if that is not known.
func (w Wait) InLine(taken int64) time.Duration {
	if w.State != Parked && w.State != Called || w.Soonest == 0 {
		return 0
	}
	parked := time.Duration(w.Soonest)*time.Millisecond - settled
	return max(time.Duration(taken)*time.Microsecond-parked, 0)
}

// ParseWait reads the field. It returns false for a task that never waited.
func ParseWait(s string) (w Wait, ok bool) {
	f := strings.SplitN(s, " ", 7)
	if len(f) != 7 {
		return Wait{}, false
	}
	w.State, w.Line = State(f[0]), f[6]
	for i, n := range []*int64{&w.Since, &w.Soonest, &w.Score, &w.Cost, &w.Refused} {
		var err error
		if *n, err = strconv.ParseInt(f[i+1], 10, 64); err != nil {
			return Wait{}, false
		}
	}
	return w, true
}
