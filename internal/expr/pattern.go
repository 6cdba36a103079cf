package expr

import (
	"cmp"
	"strings"
)

// Pattern is a task type, or the beginning of several types. Patterns that match the same types
// are equal.
type Pattern struct {
	text   string
	prefix bool
}

// ParsePattern parses a pattern. One that ends in ":" or "*" is a beginning.
func ParsePattern(s string) Pattern {
	if text, ok := strings.CutSuffix(s, "*"); ok {
		return Pattern{text, true}
	}
	return Pattern{s, strings.HasSuffix(s, ":")}
}

// Type returns the task type of the pattern, or false if it is the beginning of several types.
func (p Pattern) Type() (string, bool) { return p.text, !p.prefix }

// Matches reports whether the pattern matches this task type.
func (p Pattern) Matches(taskType string) bool {
	return taskType == p.text || p.prefix && strings.HasPrefix(taskType, p.text)
}

// Compare orders patterns. Those that win come first: the longest wins, and a whole type before
// a beginning.
func (p Pattern) Compare(other Pattern) int {
	switch {
	case len(p.text) != len(other.text):
		return cmp.Compare(len(other.text), len(p.text))
	case p.prefix != other.prefix && other.prefix:
		return -1
	case p.prefix != other.prefix:
		return 1
	}
	return cmp.Compare(p.text, other.text)
}
