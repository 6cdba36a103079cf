package throttle

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jobthrottle/jobthrottle/throttle/internal/script"
)

// maxName bounds the names of limiters and the ids of clients, in bytes.
const maxName = 512

// checkName refuses names whose keys Redisson would spread over slots, and
// names that no operator could type.
func checkName(name string) error {
	bad := func(why string) error {
		return &Error{Limiter: script.Clip(name), Err: ErrInvalidName, Detail: why}
	}
	switch {
	case name == "":
		return bad("empty")
	case len(name) > maxName:
		return bad(fmt.Sprintf("%d bytes, at most %d", len(name), maxName))
	case !printable(name):
		return bad("control characters or invalid UTF-8")
	}
	if _, ok := script.HashTag(name); !ok {
		return bad("braces that are not one {hash tag}")
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
