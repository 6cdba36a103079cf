package script

import (
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"
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
	return fmt.Errorf("%w: its %s in Redis makes no sense: set the rate again, or delete the limiter", ErrInvalidRate, Clip(field))
}

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
	if Says(err, "WRONGTYPE") {
		return ErrWrongType
	}
	if Says(err, "PERCLIENT") {
		return ErrPerClient
	}
	if field, ok := strings.CutPrefix(err.Error(), "BADFIELD "); ok {
		return BadField(field)
	}
	return err
}

// Says reports whether an error reply begins with a code. Older servers quote the code of an
// error that happens inside a script: that counts, too.
func Says(err error, code string) bool {
	text := err.Error()
	if strings.HasPrefix(text, code) {
		return true
	}
	return strings.HasPrefix(text, "ERR Error ") && (strings.Contains(text, " "+code+" ") || strings.Contains(text, " -"+code+" "))
}

// passing are the replies of a Redis that will serve again later, or whose node go-redis could
// not find in time.
var passing = []string{"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "OOM", "BUSY",
	"NOREPLICAS", "UNBLOCKED", "MISCONF", "NOSCRIPT", "ERR max number of clients"}

// Transient reports whether the same call may succeed later: Redis cannot be
// reached, or says that it is not ready.
func Transient(err error) bool {
	for _, lasting := range []error{ErrWrongType, ErrInvalidRate, ErrPerClient, ErrReply, redis.ErrClosed} {
		if errors.Is(err, lasting) {
			return false
		}
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return true
	}
	for _, prefix := range passing {
		if Says(reply, prefix) {
			return true
		}
	}
	return false
}
