// Package refusal says what an error of a Redis call means: whether it passes without help, and
// what helps.
package refusal

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// passing are the replies of a Redis that will serve again later, or whose node go-redis could
// not find in time.
var passing = []string{"LOADING", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN", "MOVED", "ASK", "OOM", "BUSY",
	"NOREPLICAS", "UNBLOCKED", "MISCONF", "NOSCRIPT", "ERR max number of clients"}

// Passes reports whether the same call may succeed later: Redis cannot be reached, or says that
// it is not ready. It is false for a refusal that waiting does not change, and for a client that
// was closed.
func Passes(err error) bool {
	if errors.Is(err, redis.ErrClosed) {
		return false
	}
	var reply redis.Error
	if !errors.As(err, &reply) {
		return true
	}
	for _, code := range passing {
		if Says(reply, code) {
			return true
		}
	}
	return false
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
