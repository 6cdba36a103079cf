package secrets

import (
	"regexp"
	"strconv"
	"strings"
)

// fieldNames matches names of fields up to their values, in JSON that is part of a text, is cut
// off, or was written into another JSON text and so has quotes with backslashes.
var fieldNames = regexp.MustCompile(`\\*["']((?:[^"'\\\n]|\\+u[0-9A-Fa-f]{4}){1,64})\\*["']\s*(?::|=>)\s*`)

// escapes matches the beginning of characters that are written as their numbers.
var escapes = regexp.MustCompile(`\\+u`)

// field is a field in a text: its name, and where its value begins and ends, without its
// quotes.
type field struct {
	name     string
	from, to int
}

// fields returns a text without the values of secret fields, if it is not JSON as a whole. For
// a secret object or list it hides everything after its beginning, because the end is
// uncertain.
func (h *Hider) fields(s string) string {
	var all []field
	for _, at := range fieldNames.FindAllStringSubmatchIndex(s, -1) {
		name := s[at[2]:at[3]]
		if strings.Contains(name, `\`) {
			if plain, err := strconv.Unquote(`"` + escapes.ReplaceAllString(name, `\u`) + `"`); err == nil {
				name = plain
			}
		}
		if from, to := valueAt(s, at[1]); to > from {
			all = append(all, field{name, from, to})
		}
	}
	secret := func(i int) bool {
		if h.Secret(all[i].name) {
			return true
		}
		// {"name": "Authorization", "value": "..."}, as in lists of headers
		isName := func(i int) bool {
			return i >= 0 && i < len(all) && plainName(all[i].name) == "name" && h.Secret(s[all[i].from:all[i].to])
		}
		if plainName(all[i].name) != "value" {
			return false
		}
		for near := 1; near <= 4; near++ { // other fields may be between them
			if isName(i-near) || isName(i+near) {
				return true
			}
		}
		return false
	}
	var b strings.Builder
	done := 0
	for i, f := range all {
		if f.from >= done && secret(i) {
			b.WriteString(s[done:f.from] + Hidden)
			done = f.to
		}
	}
	return b.String() + s[done:]
}

// bareNames matches names without quotes up to their values: in an object of JavaScript, in
// YAML, in a header.
var bareNames = regexp.MustCompile(`(^|[\s{,;(\[])([A-Za-z][A-Za-z0-9_.-]{0,63}):[ \t]*`)

// word matches a value that is no sentence. It has a digit, so that "wrong token: EOF" stays
// unchanged.
var word = regexp.MustCompile(`^[^\s"',;(){}\[\]]*[0-9][^\s"',;(){}\[\]]*`)

// bare returns a text without the values of secret fields whose names have no quotes. For the
// header Cookie, and others with a - in their names, it hides the rest of the line.
func (h *Hider) bare(s string) string {
	var b strings.Builder
	done := 0
	for _, at := range bareNames.FindAllStringSubmatchIndex(s, -1) {
		name := s[at[4]:at[5]]
		if at[1] < done || !h.Secret(name) {
			continue
		}
		from, to := valueAt(s, at[1])
		switch {
		case strings.Contains(name, "-") || plainName(name) == "cookie":
			from, to = at[1], at[1]+strings.IndexAny(s[at[1]:]+"\n", "\n\"'")
		case from == to:
			from, to = at[1], at[1]+len(word.FindString(s[at[1]:]))
		}
		if to > from {
			b.WriteString(s[done:from] + Hidden)
			done = to
		}
	}
	return b.String() + s[done:]
}

// prefix is what Python writes before the quote of bytes and of some texts.
var prefix = regexp.MustCompile(`^[bBrRuU]{1,2}["']`)

var number = regexp.MustCompile(`^-?[0-9][0-9.eE+-]*`)

// valueAt returns the beginning and the end of the value that begins at the index at. It is
// empty for what is no JSON value, and for null, true and false.
func valueAt(s string, at int) (from, to int) {
	quote := at
	for quote < len(s) && s[quote] == '\\' {
		quote++
	}
	depth := quote - at
	quote += max(len(prefix.FindString(s[quote:]))-1, 0)
	if quote == len(s) {
		return at, at
	}
	switch c := s[quote]; c {
	case '"', '\'':
		// It ends at the next quote with no more backslashes than this one. A quote with more
		// belongs to the value.
		slashes := 0
		for i := quote + 1; i < len(s); i++ {
			switch {
			case s[i] == '\\':
				slashes++
				continue
			case s[i] == c && slashes <= depth:
				return quote + 1, i - slashes
			}
			slashes = 0
		}
		return quote + 1, len(s)
	case '{', '[':
		return quote, len(s)
	}
	return at, at + len(number.FindString(s[at:]))
}
