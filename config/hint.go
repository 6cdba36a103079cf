package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jobthrottle/jobthrottle/internal/similar"
)

// quote is what helps if YAML takes a colon or a brace for its own.
const quote = `put a key or a value that has : or ${ in it between quotes`

// otherWords are keys that other tools have, and what is meant by them here. They begin with the section.
var otherWords = map[string]string{
	"limits.*.permits":     "write rate: 10/1s",
	"limits.*.interval":    "write rate: 10/1s",
	"limits.*.limit":       "write rate: 10/1s",
	"limits.*.per":         "write rate: 10/1s",
	"limits.*.burst":       "write rate: 10/1s, or 50/5s, and smooth: true to spread it",
	"limits.*.per_client":  "write type: per_client",
	"limits.*.in-flight":   "write in_flight",
	"limits.*.concurrency": "write in_flight",
	"jobs.*.concurrency":   "write max_in_flight",
	"jobs.*.timeout":       "a job's timeout comes with the job",
}

// examples are what sections may have in them.
var examples = map[string]string{
	"redis":            `{ addrs: ["127.0.0.1:6379"] }`,
	"redis.addrs":      `["127.0.0.1:6379"]`,
	"limits":           `{ stripe: { rate: 10/1s } }`,
	"limits.*":         `{ rate: 10/1s }`,
	"limits.*.rate":    `10/1s`,
	"pools":            `[ { name: default, concurrency: 20 } ]`,
	"pools.*":          `{ name: default, concurrency: 20 }`,
	"pools.*.queues":   `{ default: 1, low: 1 }`,
	"jobs":             `{ "email:send": { limits: [stripe] } }`,
	"jobs.*":           `{ limits: [stripe] }`,
	"jobs.*.limits":    `[stripe]`,
	"http":             `{ allow_hosts: ["api.example.com"] }`,
	"admin":            `{ addr: "127.0.0.1:9464" }`,
	"limits.*.adapt":   `{ min: 1, max: 100 }`,
	"log":              `{ level: info }`,
	"limits.*.rates":   `{ acme: 20/1s }`,
	"limits.*.weights": `{ acme: 5 }`,
}

// kindOf is a path with * in place of names and of numbers of a list.
func kindOf(path []string) string {
	kind := slices.Clone(path)
	for i, name := range kind {
		if strings.HasPrefix(name, "[") || i > 0 && isMap(path[:i]) {
			kind[i] = "*"
		}
	}
	return strings.Join(kind, ".")
}

// isMap reports whether the section at path has names as its keys.
func isMap(path []string) bool {
	t := typeAt(path)
	return t != nil && t.Kind() == reflect.Map
}

// likeThis is an example of what the section at path has in it, for the end of an error.
func likeThis(path []string) string {
	if example := examples[kindOf(path)]; example != "" {
		return ", such as " + example
	}
	return ""
}

// unknownKey says what an unknown key may mean, and which keys there are.
func unknownKey(path []string) string {
	section, key := path[:len(path)-1], path[len(path)-1]
	known := knownKeys(section)
	hint := similar.Hint(key, known)
	parts := strings.Split(key, ".")
	switch meant := otherWords[kindOf(section)+"."+key]; {
	case meant != "":
		hint = ": " + meant
	case len(parts) > 1 && isKey(section, parts):
		hint = ": write " + strings.Join(parts, ": { ") + ": ..." + strings.Repeat(" }", len(parts)-1)
	case hint == "":
		if elsewhere := sectionOf(key); elsewhere != "" {
			hint = fmt.Sprintf(": %s belongs in %s", key, elsewhere)
		}
	}
	if len(known) == 0 {
		return "unknown key" + hint
	}
	return "unknown key" + hint + separator(hint) + "want one of " + strings.Join(known, ", ")
}

// isKey reports whether the section has such a key below it, which can be written there without quotes.
func isKey(section, parts []string) bool {
	for i, part := range parts {
		at := slices.Concat(section, parts[:i])
		if !isMap(at) && !slices.Contains(knownKeys(at), part) || strings.Contains(part, ":") {
			return false
		}
	}
	return true
}

// separator comes between a hint, which may be a question or nothing, and the rest.
func separator(hint string) string {
	switch {
	case hint == "":
		return ": "
	case strings.HasSuffix(hint, "?"):
		return " "
	}
	return "; "
}

// sections are those that have keys of their own.
var sections = []struct {
	name string
	path []string
}{
	{"a limit: limits.NAME", []string{"limits", "NAME"}},
	{"a pool: pools[0]", []string{"pools", "[0]"}},
	{"a job: jobs.PATTERN", []string{"jobs", "PATTERN"}},
	{"redis", []string{"redis"}},
	{"http", []string{"http"}},
	{"admin", []string{"admin"}},
	{"log", []string{"log"}},
	{"the first level of the file", nil},
}

// anywhere are keys that other tools have in many sections.
var anywhere = []string{"timeout", "addr", "token", "level", "format", "name", "key"}

// sectionOf says which section has a key, "" if none has, or several, or if it says too little.
func sectionOf(key string) (found string) {
	for _, s := range sections {
		if !slices.Contains(knownKeys(s.path), key) {
			continue
		}
		if found != "" || slices.Contains(anywhere, key) {
			return ""
		}
		found = s.name
	}
	return found
}
