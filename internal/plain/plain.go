// Package plain makes text from others safe to show: it adds no line to a log, and a terminal
// or page takes no command from it.
package plain

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns s with some characters written as Go escapes: control characters, line and
// paragraph separators, characters that change the direction of text, and bytes that are not
// UTF-8. Everything else, including emoji, stays as it is.
func Text(s string) string {
	at := strings.IndexFunc(s, func(r rune) bool { return acts(r) || r == utf8.RuneError })
	if at < 0 {
		return s
	}
	var b strings.Builder
	b.WriteString(s[:at])
	for i := at; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case acts(r):
			quoted := strconv.QuoteRuneToASCII(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		default:
			b.WriteRune(r)
		}
		i += size
	}
	return b.String()
}

// Lines returns the text of an error, each line escaped by Text. Errors that errors.Join has
// joined have a line each. No other error has more than one line.
func Lines(err error) string {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		errs := joined.Unwrap()
		texts, lines := make([]string, len(errs)), make([]string, len(errs))
		for i, e := range errs {
			texts[i], lines[i] = e.Error(), Lines(e)
		}
		if strings.Join(texts, "\n") == err.Error() {
			return strings.Join(lines, "\n")
		}
	}
	return Text(err.Error())
}

// JSON returns encoded JSON in which characters that are not plain are JSON escapes, which mean
// the same. Encoders have already escaped the ASCII control characters within strings. Those
// between values, such as line ends, stay.
func JSON(encoded []byte) []byte {
	plain := make([]byte, 0, len(encoded))
	for len(encoded) > 0 {
		r, size := utf8.DecodeRune(encoded)
		if r >= 0x7f && acts(r) {
			plain = fmt.Appendf(plain, `\u%04x`, r)
		} else {
			plain = append(plain, encoded[:size]...)
		}
		encoded = encoded[size:]
	}
	return plain
}

// acts reports whether a character has an effect where it is shown.
func acts(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7f
	}
	return unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control) || r >= 0x206a && r <= 0x206f
}
