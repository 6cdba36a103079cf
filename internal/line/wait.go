package line

import (
	"strconv"
	"strings"
	"time"
)

// A State says where a task is in its wait.
type State string

// The states of a Wait.
const (
	Parked  State = "p" // in line
	Called  State = "c" // on its way from the line to a process
	Back    State = "w" // on its way again: its process ended while the task waited there
	Untried State = "q" // in its queue again: its process ended before the task had asked for anything
	Arrived State = "a" // a process has it, or it has run since
)

// Near reports whether the permits of a task that comes in this state are due soon: it was
// called, or it waited in a process that ended.
func (s State) Near() bool { return s == Called || s == Back }

// Wait is how a task waits: the field jt of its hash.
type Wait struct {
	State   State
	Since   int64  // its first arrival, by Redis's clock, in microseconds after 1970
	Soonest int64  // before this time nobody takes it from the line, in milliseconds after 1970; in its queue again: when it went back
	Score   int64  // of the parked task, in asynq's retry set
	Cost    int64  // permits
	Refused int64  // when its API first told it to try later, moved on by its waits for other things since, in seconds after 1970; 0: never
	Line    string // the name of its line
}

// InLine is how long a task that was taken at that time had been in line, or in its queue again. The time is
// by Redis's clock, in microseconds after 1970. It is 0 if the task was not there, or if that is not known.
func (w Wait) InLine(taken int64) time.Duration {
	since := time.Duration(w.Soonest) * time.Millisecond
	switch {
	case w.Soonest == 0, w.State == Arrived:
		return 0
	case w.State == Parked, w.State == Called:
		since -= Settled
	}
	return max(time.Duration(taken)*time.Microsecond-since, 0)
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
