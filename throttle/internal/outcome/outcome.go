// Package outcome has a type that packages throttle and httplimit share. throttle imports
// httplimit, so httplimit cannot import throttle.
package outcome

import "time"

// Outcome is throttle.Outcome.
type Outcome struct {
	// Refused: the API refused the request because of its limit. Otherwise the API accepted
	// the request, whatever else it answered. A timeout, or a server that fails, tells nothing
	// of a limit, and is not to be observed.
	Refused bool
	// Permits are those that the request cost. Zero counts as one.
	Permits int64
	// Limit is how many permits the API says that it allows in Window. Zero: it does not say.
	Limit  int64
	Window time.Duration
	// MaxPause is the longest pause that a refusal may cause. Zero: 15 minutes.
	MaxPause time.Duration
}
