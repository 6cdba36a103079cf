package script

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jobthrottle/jobthrottle/internal/refusal"
)

var (
	// ErrWrongType is throttle.ErrWrongType.
	ErrWrongType = errors.New("a key of the limiter holds data of another type")
	// ErrInvalidRate is throttle.ErrInvalidRate.
	ErrInvalidRate = errors.New("invalid rate")
	// ErrReply says that a script gave a reply that this version cannot read.
	ErrReply = errors.New("unexpected reply from Redis (another version's script?)")
)

func badReply(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrReply}, args...)...)
}

// BadField says that a limiter's configuration in Redis makes no sense.
func BadField(field string) error {
	return fmt.Errorf("%w: %w: set the rate again, or delete the limiter", ErrInvalidRate, FieldError(Clip(field)))
}

// FieldError names a field of a limiter in Redis whose value makes no sense.
type FieldError string

func (e FieldError) Error() string { return "its " + string(e) + " in Redis makes no sense" }

// Clip keeps an overlong word from flooding an error.
func Clip(word string) string {
	if len(word) <= 64 {
		return word
	}
	return strings.ToValidUTF8(word[:64], "") + "..."
}

// Classify turns Redis's error for a key of another type, and what the scripts say about a
// configuration, into this package's errors.
func Classify(err error) error {
	if refusal.Says(err, "WRONGTYPE") {
		return ErrWrongType
	}
	if refusal.Says(err, "PERCLIENT") {
		return ErrPerClient
	}
	if field, ok := strings.CutPrefix(err.Error(), "BADFIELD "); ok {
		return BadField(field)
	}
	return err
}

// Transient reports whether the same call may succeed later: Redis cannot be
// reached, or says that it is not ready.
func Transient(err error) bool {
	for _, lasting := range []error{ErrWrongType, ErrInvalidRate, ErrPerClient, ErrReply} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	return refusal.Passes(err)
}
