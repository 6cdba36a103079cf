package script

import "strings"

// Span is how many keys a script gets for each limiter: SPAN in prelude.lua.
const Span = 6

// Keys are the keys of a limiter for one client, in the order that log.lua expects.
type Keys [Span]string

// KeysOf are the keys of a limiter for a client with this id.
func KeysOf(name, id string) Keys {
	p := Prefix(name)
	return Keys{
		name,
		p + ":value",
		p + ":permits",
		p + ":value:" + id,
		p + ":permits:" + id,
		p + ":clients",
	}
}

// Prefix wraps a name as Redisson does, so that all its keys share a slot.
func Prefix(name string) string {
	if strings.Contains(name, "{") {
		return name
	}
	return "{" + name + "}"
}

// HashTag is the part of a name that decides its Redis Cluster slot; false if its
// braces are not one {hash tag}.
func HashTag(name string) (string, bool) {
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
