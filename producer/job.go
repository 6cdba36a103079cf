package producer

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// None means none at all for a [Job]'s MaxRetry or Retention, where zero means the default.
const None = -1

const (
	defaultQueue    = "default"      // asynq's
	defaultMaxRetry = 25             // asynq's
	idRetention     = 24 * time.Hour // of a job with an ID
	maxRetryLimit   = math.MaxInt32  // asynq stores 32 bits
	maxDuration     = 10 * 365 * 24 * time.Hour
)

// Job is a job to enqueue. Only Type is required. asynq counts in whole seconds: Timeout,
// UniqueFor and Retention are rounded up. It stores texts as UTF-8: all but Payload have to be
// valid UTF-8.
type Job struct {
	Type    string          // the worker selects the handler by it
	Payload json.RawMessage // handed to the handler unchanged

	// ID makes enqueueing repeatable: while asynq keeps the task, a second job with this ID is
	// refused. If it is empty, each Enqueue makes a new task. Control characters are refused.
	ID string

	Queue   string            // defaults to "default"
	Headers map[string]string // task headers; MaxRetryHeader is reserved

	// MaxRetry is how often a failed job is tried again. Zero means 25, None means never.
	MaxRetry int

	// Timeout is how long one attempt may run, at least 1s. Zero means asynq's 30 minutes.
	Timeout time.Duration

	ProcessIn time.Duration // the job may not start before this time has passed

	// UniqueFor, at least 1s, refuses a second job of the same type, payload and queue until
	// this one is done or the time is over. A job that is archived is not done: see [ErrArchived].
	// Zero allows it.
	UniqueFor time.Duration

	// Retention is how long asynq keeps the task after success, and knows its ID. Zero means
	// 24h for a job with an ID and nothing for others, None means nothing.
	Retention time.Duration

	// Replace replaces a job with the same ID that failed for good and is archived. If that
	// fails, the archived job stays unchanged. Job lines do not have this field.
	Replace bool
}

// ErrInvalidJob matches every [*JobError] in errors.Is.
var ErrInvalidJob = errors.New("invalid job")

// JobError says why a job, or its line, cannot be enqueued, and what would be right.
type JobError struct {
	Field  string // as in a job line; empty if the line as a whole is wrong
	Reason string
}

// Error says which field is wrong, if it is one, and why.
func (e *JobError) Error() string {
	if e.Field == "" {
		return e.Reason
	}
	return e.Field + ": " + e.Reason
}

// Is makes every JobError match [ErrInvalidJob].
func (e *JobError) Is(target error) bool { return target == ErrInvalidJob }

// Validate returns a [*JobError] for the first field that asynq would refuse or, worse,
// misunderstand.
func (j Job) Validate() error {
	switch {
	case strings.TrimSpace(j.Type) == "":
		return &JobError{"type", `is missing; name what the job is, for example "http:request"`}
	case !utf8.ValidString(j.Type):
		return notUTF8("type", strconv.Quote(clip(j.Type)))
	case j.ID != "" && strings.TrimSpace(j.ID) == "":
		return &JobError{"id", "is blank; give it a value or leave it out"}
	case !utf8.ValidString(j.ID) || strings.ContainsFunc(j.ID, unicode.IsControl):
		return &JobError{"id", fmt.Sprintf("%q has control characters, which act in logs and terminals; give it printable ones", clip(j.ID))}
	case j.Queue != "" && strings.TrimSpace(j.Queue) == "":
		return &JobError{"queue", `is blank; name a queue or leave it out for "default"`}
	case !utf8.ValidString(j.Queue):
		return notUTF8("queue", strconv.Quote(clip(j.Queue)))
	case j.MaxRetry > maxRetryLimit:
		return &JobError{"max_retry", fmt.Sprintf("%d is too many; at most %d", j.MaxRetry, maxRetryLimit)}
	case j.MaxRetry < None:
		return &JobError{"max_retry", fmt.Sprintf("%d is negative; give 0 or more", j.MaxRetry)}
	}
	if _, reserved := j.Headers[MaxRetryHeader]; reserved {
		return &JobError{"headers", MaxRetryHeader + " is reserved; set max_retry instead"}
	}
	for name, value := range j.Headers { // the value may be a secret
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return notUTF8("headers", strconv.Quote(clip(name))+" or its value")
		}
	}
	for _, d := range []struct {
		field string
		value time.Duration
		least time.Duration // unless zero
	}{
		{"timeout", j.Timeout, time.Second},
		{"process_in", j.ProcessIn, 0},
		{"unique_for", j.UniqueFor, time.Second},
		{"retention", max(j.Retention, 0), 0},
	} {
		switch {
		case d.value == 0:
		case d.value < 0:
			return &JobError{d.field, fmt.Sprintf("%v is negative; give a time from now on", d.value)}
		case d.value < d.least:
			return tooShort(d.field, d.value)
		case d.value > maxDuration:
			return &JobError{d.field, fmt.Sprintf("%v is too long; give at most 10 years (%v)", d.value, maxDuration)}
		}
	}
	return nil
}

// notUTF8 refuses what asynq cannot encode.
func notUTF8(field, what string) error {
	return &JobError{field, what + " is not valid UTF-8; asynq stores no other text"}
}

// tooShort refuses what asynq would store as 0 seconds: for a timeout of 0 it uses 30 minutes.
func tooShort(field string, d time.Duration) error {
	return &JobError{field, fmt.Sprintf("%v is below 1s; asynq counts whole seconds, give at least 1s or leave it out", d)}
}

func (j Job) maxRetry() int {
	if j.MaxRetry == 0 {
		return defaultMaxRetry
	}
	return max(j.MaxRetry, 0)
}

func (j Job) retention() time.Duration {
	if j.Retention == 0 && j.ID != "" {
		return idRetention
	}
	return max(j.Retention, 0)
}

func (j Job) queue() string {
	if j.Queue == "" {
		return defaultQueue
	}
	return j.Queue
}
