package plain

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

func TestText(t *testing.T) {
	for s, want := range map[string]string{
		"":                         "",
		`order-17 "quoted" \n 50%`: `order-17 "quoted" \n 50%`,
		"Zürich 東京 \u200d👩\u200d🔬 🇨🇭 🏴󠁧󠁢󠁥󠁮󠁧󠁿 é": "Zürich 東京 \u200d👩\u200d🔬 🇨🇭 🏴󠁧󠁢󠁥󠁮󠁧󠁿 é",
		"a\ufffdb":               "a\ufffdb",
		"a\nb\r\tc":              `a\nb\r\tc`,
		"\x1b[2J\x07\x00\x7f":    `\x1b[2J\a\x00\x7f`,
		"\u009b2J\u0085":         `\u009b2J\u0085`,
		"a\xffb\x9b\ufffd":       `a\xffb\x9b` + "\ufffd",
		"\u202eevil\u2066\u200f": `\u202eevil\u2066\u200f`,
		"a\u2028b\u2029":         `a\u2028b\u2029`,
		"\u061c\u206a":           `\u061c\u206a`,
	} {
		if got := Text(s); got != want {
			t.Errorf("Text(%q) = %q, want %q", s, got, want)
		}
	}
}

func TestLines(t *testing.T) {
	nasty := errors.New("a\nb")
	for want, err := range map[string]error{
		`a\nb`:            nasty,
		`x: a\nb`:         fmt.Errorf("x: %w", nasty),
		"a\\nb\nc":        errors.Join(nasty, errors.New("c")),
		`c\na\nb`:         errors.New("c\na\nb"),
		`a\nb: x\x1b`:     fmt.Errorf("%w: %w", nasty, errors.New("x\x1b")),
		"a\\nb\nc\na\\nb": errors.Join(errors.Join(nasty, errors.New("c")), nasty),
	} {
		if got := Lines(err); got != want {
			t.Errorf("Lines(%q) = %q, want %q", err, got, want)
		}
	}
}

// FuzzPlain: nothing of a text acts, text that is plain stays as it is, JSON
// keeps its meaning, and a log line is one line.
func FuzzPlain(f *testing.F) {
	for _, s := range []string{"", "order-17", "a\nb", "\x1b[2J", "\u009b", "\xff\x9b", "\u202e", "\u2028", "👩‍🔬", "\ufffd", "\U000e0067"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		text := Text(s)
		if actsSomewhere(text) {
			t.Errorf("Text(%q) = %q", s, text)
		}
		if Text(text) != text || !actsSomewhere(s) && text != s {
			t.Errorf("Text(%q) = %q", s, text)
		}
		encoded, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back, want string
		if err := json.Unmarshal(JSON(encoded), &back); err != nil {
			t.Fatalf("%q: %v", JSON(encoded), err)
		}
		if err := json.Unmarshal(encoded, &want); err != nil || back != want || actsSomewhere(string(JSON(encoded))) {
			t.Errorf("JSON of %q is %q", s, JSON(encoded))
		}
		config := zap.NewProductionEncoderConfig()
		for _, e := range []zapcore.Encoder{zapcore.NewJSONEncoder(config), zapcore.NewConsoleEncoder(config)} {
			line, err := Encoder(e).Clone().EncodeEntry(zapcore.Entry{Message: s}, []zapcore.Field{
				zap.String("a", s), zap.String(s, "b"), zap.Error(errors.New(s)), zap.Strings("c", []string{s}), zap.ByteString("d", []byte(s)), zap.Any("e", map[string]string{s: s}),
			})
			if err != nil {
				t.Fatal(err)
			}
			logged, ended := strings.CutSuffix(line.String(), "\n")
			if logged = strings.ReplaceAll(logged, "\t", " "); !ended || actsSomewhere(logged) { // the console's own tabs
				t.Errorf("logged as %q", line)
			}
		}
	})
}

func actsSomewhere(s string) bool {
	return !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || r == 0x2028 || r == 0x2029 || r == 0x61c || r == 0x200e || r == 0x200f || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x206f
	})
}
