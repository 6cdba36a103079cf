package expr

import (
	"cmp"
	"strings"
)

// Pattern is a task type, or the beginning of several. Patterns that match the
// same types are equal.
type Pattern struct {
	text   string
	prefix bool
}

// ParsePattern reads a pattern: one that ends in ":" or "*" is a beginning.
func ParsePattern(s string) Pattern {
	if text, ok := strings.CutSuffix(s, "*"); ok {
		return Pattern{text, true}
	}
	return Pattern{s, strings.HasSuffix(s, ":")}
}

// Type returns the task type that the pattern stands for, false if it is a
// beginning of many.
func (p Pattern) Type() (string, bool) { return p.text, !p.prefix }

// Matches reports whether the pattern is of this task type.
func (p Pattern) Matches(taskType string) bool {
	return taskType == p.text || p.prefix && strings.HasPrefix(taskType, p.text)
}

// Compare orders patterns, those that win first: the longest wins, and a whole
// type before a beginning.
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
