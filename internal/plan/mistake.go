package plan

import "fmt"

// Reason is the kind of a Mistake.
type Reason string

// The reasons of a Mistake.
const (
	BadKey   Reason = "bad_key"   // the task has no usable value where a limit's key reads one
	BadCost  Reason = "bad_cost"  // nor where the job's permits read one
	BadShare Reason = "bad_share" // nor where a limit's share reads one
)

// Mistake says why a task has no complete plan. Either the task is wrong or the configuration
// is.
type Mistake struct {
	Reason Reason
	Type   string // of the task
	Job    string // the pattern of the configuration that matches it
	Limit  string // the limit whose key or cost it is; empty for a cost of all limits
	Path   string // what the configuration reads: payload.account, header.tenant
	Err    error  // what is wrong with the value there
}

func (m *Mistake) Error() string { return m.Err.Error() }

// Unwrap makes errors.Is and errors.As see the cause.
func (m *Mistake) Unwrap() error { return m.Err }

// Fix says what to change.
func (m *Mistake) Fix() string {
	switch {
	case m.Reason == BadCost && m.Limit != "":
		return fmt.Sprintf("correct jobs.%s.permits.%s, or the job", m.Job, m.Limit)
	case m.Reason == BadCost:
		return fmt.Sprintf("correct jobs.%s.permits, or the job", m.Job)
	case m.Reason == BadShare:
		return fmt.Sprintf("correct limits.%s.share, or the job", m.Limit)
	}
	return fmt.Sprintf("correct limits.%s.key, or the job", m.Limit)
}
