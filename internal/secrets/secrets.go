// Package secrets hides what nobody should read over an operator's shoulder: the values of
// fields and headers whose names say that they are secret, and texts anywhere that look like
// tokens.
//
// It hides too much rather than too little. It is no access control: whoever may read Redis may
// read everything.
package secrets

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Hidden is shown instead of what is hidden.
const Hidden = "(hidden)"

// names are parts of the names of fields that hold secrets, without - and _.
var names = []string{
	"authorization", "authorisation", "cookie", "password", "passwd", "pwd", "passphrase", "secret", "token", "apikey", "accesskey", "privatekey",
	"credential", "signature", "sessionid", "otp", "cvv", "cvc", "cardnumber",
}

// whole are names of fields that hold secrets, and are parts of other words.
var whole = []string{"pass", "pin", "sig"}

// notKeys are words that end in key. openKeys are the ends of names of keys that are no secrets.
var (
	notKeys  = []string{"monkey", "donkey", "turkey", "hockey", "jockey", "whiskey"}
	openKeys = []string{"idempotencykey", "publickey", "foreignkey", "partitionkey", "sortkey", "cachekey"}
)

// hooks matches URLs up to the part of their path that is a secret: whoever knows it may post there.
var hooks = regexp.MustCompile(`(?i)(\b(?:hooks\.slack\.com(?::\d+)?[\\/]+(?:services|workflows|triggers)[\\/]+` +
	`|api\.telegram\.org(?::\d+)?[\\/]+(?:file[\\/]+)?bot` +
	`|discord(?:app)?\.com(?::\d+)?[\\/]+api[\\/]+(?:v\d+[\\/]+)?webhooks[\\/]+))[^\s"'?#]+`)

// tokens matches texts that authenticate somebody.
var tokens = regexp.MustCompile(`(?i)\b(?:bearer|basic|token)\s+[A-Za-z0-9._~+/=-]{8,}` +
	`|\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?` + // JSON web tokens
	`|\b(?:sk|pk|rk|whsec)_[A-Za-z0-9_]{12,}|\bsk-[A-Za-z0-9_-]{16,}` +
	`|\bgh[opsur]_[A-Za-z0-9]{16,}|\bgithub_pat_[A-Za-z0-9_]{16,}|\bglpat-[A-Za-z0-9_-]{16,}` +
	`|\bxox[abeprs]-[A-Za-z0-9-]{8,}|\bAKIA[A-Z0-9]{12,}|\bAIza[A-Za-z0-9_-]{20,}|\bshp(?:at|ca|pa|ss)_[A-Za-z0-9]{16,}` +
	`|-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\z)`)

// parameters matches the parameters of a query or of a form in a text.
var parameters = regexp.MustCompile(`([?&;\s"'#(,{:]|^)([A-Za-z0-9_.%\[\]-]{1,64})=([^&;\s"']+)`)

// userinfo matches the text before the host of a URL.
var userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]{0,20}://)[^/@\s"']+@`)

// Hider hides secrets. The zero value hides what this package knows.
type Hider struct {
	more []string
}

// New returns a Hider that also hides fields with these names.
func New(more []string) *Hider {
	h := &Hider{}
	for _, name := range more {
		if name = plainName(name); name != "" {
			h.more = append(h.more, name)
		}
	}
	return h
}

// plainName is a name without separators, in lower case.
func plainName(name string) string {
	return strings.NewReplacer("-", "", "_", "", " ", "", ".", "").Replace(strings.ToLower(name))
}

// Secret reports whether a field with that name holds a secret.
func (h *Hider) Secret(name string) bool {
	name = plainName(name)
	for _, part := range names {
		if strings.Contains(name, part) {
			return true
		}
	}
	if strings.Contains(strings.ReplaceAll(name, "author", ""), "auth") || isKey(name) {
		return true
	}
	return slices.Contains(whole, name) || slices.Contains(h.more, name)
}

// isKey reports whether a field with that name may hold a key that is a secret. A primary key of a
// database is none, that of a cloud is one: their names are the same.
func isKey(name string) bool {
	open := func(end string) bool { return strings.HasSuffix(name, end) }
	return strings.HasSuffix(name, "key") && !slices.Contains(notKeys, name) && !slices.ContainsFunc(openKeys, open)
}

// Text returns a text without the secrets in it.
func (h *Hider) Text(s string) string {
	s = h.bare(h.fields(s))
	s = userinfo.ReplaceAllString(s, "${1}"+Hidden+"@")
	s = hooks.ReplaceAllString(s, "${1}"+Hidden)
	s = parameters.ReplaceAllStringFunc(s, func(match string) string {
		at := parameters.FindStringSubmatch(match)
		name, err := url.QueryUnescape(at[2])
		if err != nil || !h.Secret(name) {
			return match
		}
		return at[1] + at[2] + "=" + Hidden
	})
	return tokens.ReplaceAllString(s, Hidden)
}

// maxParsed is the largest JSON value that is parsed. Larger ones are not shown.
const maxParsed = 256 << 10

// Payload returns a payload for people: JSON indented, other text unchanged, without the
// secrets in it, and at most most bytes. For a payload that is no text, it says so.
func (h *Hider) Payload(payload []byte, most int) string {
	switch {
	case len(payload) == 0:
		return ""
	case len(payload) > maxParsed:
		return fmt.Sprintf("(%d bytes: too long to show)", len(payload))
	}
	if v, ok := decode(payload); ok {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(h.value(v, 0)); err == nil {
			return cut(strings.TrimSuffix(b.String(), "\n"), most)
		}
	}
	if !utf8.Valid(payload) {
		return fmt.Sprintf("(%d bytes that are no text)", len(payload))
	}
	return cut(h.Text(string(payload)), most)
}

// Map returns fields and values, such as headers, without the secrets.
func (h *Hider) Map(fields map[string]string) map[string]string {
	shown := make(map[string]string, len(fields))
	for name, value := range fields {
		shown[name] = h.Text(value)
		if h.Secret(name) {
			shown[name] = Hidden
		}
	}
	return shown
}

func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	at := most
	for at > 0 && !utf8.RuneStart(s[at]) {
		at--
	}
	return fmt.Sprintf("%s\n… and %d bytes more", s[:at], len(s)-at)
}

func decode(text []byte) (any, bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return nil, false
	}
	return v, true
}

// maxDepth is how deep values are searched. Deeper ones are hidden.
const maxDepth = 32

func (h *Hider) value(v any, depth int) any {
	if depth > maxDepth {
		return Hidden
	}
	switch v := v.(type) {
	case map[string]any:
		// {"name": "Authorization", "value": "..."}, as in lists of headers
		secret := false
		for key, name := range v {
			name, ok := name.(string)
			secret = secret || ok && plainName(key) == "name" && h.Secret(name)
		}
		for name, field := range v {
			if (h.Secret(name) || secret && plainName(name) == "value") && field != nil {
				v[name] = Hidden
				continue
			}
			v[name] = h.value(field, depth+1)
		}
		return v
	case []any:
		for i := range v {
			v[i] = h.value(v[i], depth+1)
		}
		return v
	case string:
		return h.string(v, depth)
	}
	return v
}

// string also searches JSON inside a string, such as the body of a request.
func (h *Hider) string(s string, depth int) string {
	if trimmed := strings.TrimSpace(s); strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		if v, ok := decode([]byte(s)); ok {
			if shown, err := json.Marshal(h.value(v, depth+1)); err == nil {
				return string(shown)
			}
		}
	}
	return h.Text(s)
}
