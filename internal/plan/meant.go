package plan

import (
	"strings"
	"unicode"

	"github.com/jobthrottle/jobthrottle/internal/similar"
)

// Meant returns the pattern for which a task type was probably meant that no pattern matches, or nothing if none is
// similar. It compares the parts between colons one by one: types that share a long part, such as users:create and
// users:delete, are not similar for that.
func (js *Jobs) Meant(taskType string) string {
	parts := strings.Split(taskType, ":")
	for _, j := range js.jobs {
		if j.meant(parts) {
			return j.Name
		}
	}
	return ""
}

// meant reports whether a type with these parts is similar to the pattern, or begins with it at a colon.
func (j *Job) meant(parts []string) bool {
	_, whole := j.Type()
	named := strings.Split(strings.TrimSuffix(strings.TrimSuffix(j.Name, "*"), ":"), ":")
	if len(named) > len(parts) {
		return false
	}
	begins := true
	for i, name := range named {
		if name == parts[i] {
			continue
		}
		if begins = false; similar.Hint(parts[i], []string{name}) == "" || withoutDigits(name) == withoutDigits(parts[i]) {
			return false
		}
	}
	return begins || !whole || len(named) == len(parts)
}

// withoutDigits is for names that are numbered, such as eu1 and eu2: one is not meant for the other.
func withoutDigits(name string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsDigit(c) {
			return -1
		}
		return c
	}, name)
}
