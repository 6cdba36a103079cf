package jobview

import (
	"strconv"
	"strings"
	"time"
)

// BlockReason is why a job cannot run until something is fixed.
type BlockReason string

// WasPutOff reports whether text, the last error of a task, is that of a ThrottledError whose
// task is not blocked. A handler's own error may begin with the same word.
func WasPutOff(text string) bool {
	rest, ok := strings.CutPrefix(text, "throttled")
	if by, named := strings.CutPrefix(rest, " by limiter "); named {
		name, err := strconv.QuotedPrefix(by)
		if err != nil {
			return false
		}
		rest = by[len(name):]
	}
	rest, next := strings.CutPrefix(rest, ", next try in about ")
	wait, _, _ := strings.Cut(rest, ": ")
	_, err := time.ParseDuration(wait)
	return ok && next && err == nil
}

// BlockedFor returns the reason in the text of a BlockedError, and the rest of it.
func BlockedFor(text string) (reason BlockReason, rest string, ok bool) {
	text, ok = strings.CutPrefix(text, "blocked (")
	if !ok {
		return "", "", false
	}
	before, rest, ok := strings.Cut(text, "): ")
	return BlockReason(before), rest, ok
}
