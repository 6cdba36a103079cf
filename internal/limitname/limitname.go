// Package limitname has the rules for the names of limits, and of the limiters of their values.
package limitname

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxLength is the maximum length of the names of limits and the values of their keys, in
// bytes. It keeps the names of limiters short enough to read, and to store by the million.
const MaxLength = 128

// Check says what is wrong with the name of a limit. Braces are for hash tags only.
func Check(name string) error {
	open, shut := strings.Count(name, "{"), strings.Count(name, "}")
	switch {
	case name == "" || len(name) > MaxLength:
		return fmt.Errorf("invalid name %.40q: want 1 to %d bytes", name, MaxLength)
	case !utf8.ValidString(name):
		return fmt.Errorf("invalid name %q: want valid UTF-8", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("invalid name %q: want no control characters", name)
	case open > 1 || open != shut || open == 1 && strings.Index(name, "}") < strings.Index(name, "{")+2:
		return fmt.Errorf("invalid name %q: want no braces, or one hash tag such as {api}", name)
	}
	return nil
}

// HashTag returns the part of a name that decides its Redis Cluster slot.
func HashTag(name string) string {
	if _, rest, ok := strings.Cut(name, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return name
}

var (
	escape   = strings.NewReplacer("%", "%25", ":", "%3A")
	unescape = strings.NewReplacer("%25", "%", "%3A", ":")
)

// OfValue returns the name of the limiter of one value of a limit's key. The error says what is
// wrong with the value. A colon in the value would lead to the keys of another value's limiter
// ({api}:acme:permits), or of another limit. So a colon is written %3A, and % is written %25.
func OfValue(limit, value string) (string, error) {
	switch {
	case value == "":
		return "", fmt.Errorf("the key of limit %q is empty", limit)
	case len(value) > MaxLength:
		return "", fmt.Errorf("the key of limit %q has %d bytes: want %d at most", limit, len(value), MaxLength)
	case !utf8.ValidString(value):
		return "", fmt.Errorf("the key of limit %q is not valid UTF-8: %.40q", limit, value)
	case strings.ContainsAny(value, "{}") || strings.ContainsFunc(value, unicode.IsControl):
		return "", fmt.Errorf("the key of limit %q has braces or control characters: %.40q", limit, value)
	}
	return limit + ":" + escape.Replace(value), nil
}

// Value returns the value of a limit's key without the escapes that it has in a limiter's name.
func Value(escaped string) string { return unescape.Replace(escaped) }

// Reserved returns who owns the keys in Redis that begin like a name, and that beginning. Both
// are empty for a name that is not reserved. The names of a limit's values begin with the name
// of the limit and a colon.
func Reserved(name string) (owner, begin string) {
	for _, begin := range []string{"jobthrottle:", "{jobthrottle:", "asynq:"} {
		if strings.HasPrefix(name, begin) {
			return strings.Trim(begin, "{:"), begin
		}
	}
	return "", ""
}
