package throttle

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxName bounds the names of limiters and the ids of clients, in bytes.
const maxName = 512

// spanKeys is how many keys a script gets for each limiter: SPAN in log.lua.
const spanKeys = 6

// checkName refuses names whose keys Redisson would spread over slots, and
// names that no operator could type.
func checkName(name string) error {
	bad := func(why string) error {
		return &Error{Limiter: clip(name), Err: ErrInvalidName, Detail: why}
	}
	switch {
	case name == "":
		return bad("empty")
	case len(name) > maxName:
		return bad(fmt.Sprintf("%d bytes, at most %d", len(name), maxName))
	case !printable(name):
		return bad("control characters or invalid UTF-8")
	}
	if _, ok := hashTag(name); !ok {
		return bad("braces that are not one {hash tag}")
	}
	return nil
}

func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl)
}

// clip keeps an overlong name from flooding an error.
func clip(name string) string {
	if len(name) <= 64 {
		return name
	}
	return strings.ToValidUTF8(name[:64], "") + "..."
}

// hashTag is the part of a name that decides its Redis Cluster slot.
func hashTag(name string) (string, bool) {
	open := strings.IndexByte(name, '{')
	if open < 0 {
		return name, !strings.Contains(name, "}")
	}
	n := strings.IndexByte(name[open:], '}')
	if n < 2 {
		return "", false
	}
	return name[open+1 : open+n], true
}

// keyPrefix wraps a name as Redisson does, so that all its keys share a slot.
func keyPrefix(name string) string {
	if strings.Contains(name, "{") {
		return name
	}
	return "{" + name + "}"
}

// limiterKeys are the keys of a limiter as one client sees it, in the order
// that log.lua expects.
func limiterKeys(name, id string) [spanKeys]string {
	p := keyPrefix(name)
	return [spanKeys]string{
		name,
		p + ":value",
		p + ":permits",
		p + ":value:" + id,
		p + ":permits:" + id,
		p + ":clients",
	}
}
