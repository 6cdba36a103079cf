package script

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxName bounds the names of limiters and the ids of clients, in bytes.
const MaxName = 512

// CheckName says what is wrong with the name of a limiter, "" if nothing is. It refuses names
// whose keys Redisson would spread over slots, and names that no operator could type.
func CheckName(name string) (why string) {
	switch {
	case name == "":
		return "empty"
	case len(name) > MaxName:
		return fmt.Sprintf("%d bytes, at most %d", len(name), MaxName)
	case !Printable(name):
		return "control characters or invalid UTF-8"
	}
	if _, ok := HashTag(name); !ok {
		return "braces that are not one {hash tag}"
	}
	return ""
}

// Printable reports whether a name or an id is text without control characters.
func Printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}
