package config

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/jobthrottle/jobthrottle/internal/limitname"
)

// ownKeys are what follows the name in braces in the keys of a limiter and of the lines of its
// parked tasks, as in {name}:permits. A test of package worker finds missing ones.
var ownKeys = []string{"value", "permits", "clients", "reply", "parked", "queues", "refused", "finish", "waiting", "weights", "slots", "held", "line", "seen", "call"}

// checkNames refuses limits if the limiter of one could have the same Redis key as the limiter
// of another. The values of a key contain no colons (see limitname.OfValue), so it is enough to
// check the names in the configuration.
func (c *Config) checkNames() error {
	for _, name := range slices.Sorted(maps.Keys(c.Limits)) {
		key, keyed := "limits."+name, c.Limits[name].Key != ""
		begins := name
		if keyed {
			begins += ":"
		}
		if owner, begin := limitname.Reserved(begins); owner != "" {
			return invalid(key, "%s has keys of its own in Redis that begin with %q: want another name", owner, begin)
		}
		if most := limitname.MaxLength - 1; keyed && len(name) > most {
			return invalid(key, "a name of %d bytes: want %d at most for a limit with a key", len(name), most)
		}
		if other, begin := c.keyOwner(name); other != "" {
			return invalid(key, "has keys in Redis that limit %q has as well: want a name that does not begin with %q", other, begin)
		}
	}
	return nil
}

// keyOwner returns the limit that may have the keys of another, and the beginning of the
// other's name that causes this. Both are empty if there is none.
func (c *Config) keyOwner(name string) (other, begin string) {
	for above, next := range colons(name) {
		l, found := c.Limits[above]
		switch {
		case found && l.Key != "": // one of its values
			return above, above + ":"
		case found && strings.Contains(above, "{") && slices.Contains(ownKeys, next):
			return above, above + ":" + next
		}
	}
	if !strings.HasPrefix(name, "{") { // names without braces get braces around the whole name
		return "", ""
	}
	tag := limitname.HashTag(name)
	for above := range colons(tag) {
		if c.Limits[above].Key != "" {
			return above, "{" + above + ":"
		}
	}
	if _, found := c.Limits[tag]; !found {
		return "", ""
	}
	begin = "{" + tag + "}"
	if name == begin {
		return tag, begin
	}
	next, _, _ := strings.Cut(strings.TrimPrefix(name, begin+":"), ":")
	if strings.HasPrefix(name, begin+":") && slices.Contains(ownKeys, next) {
		return tag, begin + ":" + next
	}
	return "", ""
}

// colons yields, for each colon of a name, the text before it, and the text between it and the
// next.
func colons(name string) iter.Seq2[string, string] {
	return func(yield func(before, next string) bool) {
		for i, c := range []byte(name) {
			if c != ':' {
				continue
			}
			next, _, _ := strings.Cut(name[i+1:], ":")
			if !yield(name[:i], next) {
				return
			}
		}
	}
}
