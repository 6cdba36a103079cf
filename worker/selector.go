package worker

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// selector picks a value out of a task: payload.PATH, header.NAME or queue.
type selector struct {
	source string // "payload", "header" or "queue"
	path   []string
}

func parseSelector(s string) (selector, error) {
	source, rest, dotted := strings.Cut(s, ".")
	sel := selector{source: source}
	switch {
	case source == "queue" && !dotted:
		return sel, nil
	case source == "header" && rest != "":
		sel.path = []string{rest}
		return sel, nil
	case source == "payload" && rest != "":
		sel.path = strings.Split(rest, ".")
		for _, name := range sel.path {
			if name == "" {
				return selector{}, fmt.Errorf("invalid path %q: a name between dots is missing", s)
			}
		}
		return sel, nil
	}
	return selector{}, fmt.Errorf("invalid path %q: want payload.PATH, header.NAME or queue", s)
}

func (s selector) String() string {
	return strings.Join(append([]string{s.source}, s.path...), ".")
}

// pick returns the value as text. Numbers keep the digits they are written with.
func (s selector) pick(t *asynq.Task, queue string) (string, error) {
	switch s.source {
	case "queue":
		return queue, nil
	case "header":
		v, ok := t.Headers()[s.path[0]]
		if !ok {
			return "", fmt.Errorf("the task has no header %q", s.path[0])
		}
		return v, nil
	}
	raw := json.RawMessage(t.Payload())
	for i, name := range s.path {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return "", fmt.Errorf("%s is not a JSON object", selector{s.source, s.path[:i]})
		}
		value, ok := object[name]
		if !ok {
			return "", fmt.Errorf("the payload has no %s", strings.Join(s.path[:i+1], "."))
		}
		raw = value
	}
	var text string
	if json.Unmarshal(raw, &text) == nil && raw[0] == '"' {
		return text, nil
	}
	if c := raw[0]; c == '{' || c == '[' || c == 'n' {
		return "", fmt.Errorf("%s is not a string, number or boolean", s)
	}
	return string(raw), nil
}

// maxKeyLength keeps the names of keyed limiters short enough to read and to store by the million.
const maxKeyLength = 128

var (
	escapeValue   = strings.NewReplacer("%", "%25", ":", "%3A")
	unescapeValue = strings.NewReplacer("%25", "%", "%3A", ":")
)

// limiterName returns the name of the limiter of one value, or what is wrong
// with the value. A colon of the value would name the keys of another value's
// limiter ({api}:acme:permits), or another limit: it is written %3A, and % is %25.
func limiterName(limit, value string) (string, error) {
	switch {
	case value == "":
		return "", fmt.Errorf("the key of limit %q is empty", limit)
	case len(value) > maxKeyLength:
		return "", fmt.Errorf("the key of limit %q has %d bytes: want %d at most", limit, len(value), maxKeyLength)
	case !utf8.ValidString(value):
		return "", fmt.Errorf("the key of limit %q is not valid UTF-8: %.40q", limit, value)
	case strings.ContainsAny(value, "{}") || strings.ContainsFunc(value, unicode.IsControl):
		return "", fmt.Errorf("the key of limit %q has braces or control characters: %.40q", limit, value)
	}
	return limit + ":" + escapeValue.Replace(value), nil
}

// cost is what a job takes of each of its limits: a fixed number, or one that it brings.
type cost struct {
	fixed int64
	from  *selector
}

func parseCost(s string) (cost, error) {
	if s == "" {
		return cost{fixed: 1}, nil
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		if n < 1 || n > throttle.MaxPermits {
			return cost{}, fmt.Errorf("invalid number %d: want 1 to %d", n, int64(throttle.MaxPermits))
		}
		return cost{fixed: n}, nil
	}
	sel, err := parseSelector(s)
	if err != nil || sel.source == "queue" {
		return cost{}, fmt.Errorf("invalid permits %q: want a whole number, payload.PATH or header.NAME", s)
	}
	return cost{from: &sel}, nil
}

// of returns what the task costs.
func (c cost) of(t *asynq.Task, queue string) (int64, error) {
	if c.from == nil {
		return c.fixed, nil
	}
	text, err := c.from.pick(t, queue)
	if err != nil {
		return 0, fmt.Errorf("permits: %w", err)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > throttle.MaxPermits {
		return 0, fmt.Errorf("permits: %s is %.40q: want a whole number from 1 to %d", c.from, text, int64(throttle.MaxPermits))
	}
	return n, nil
}

// checkName says what is wrong with the name of a limit. Braces are for hash tags only.
func checkName(name string) error {
	open, shut := strings.Count(name, "{"), strings.Count(name, "}")
	switch {
	case name == "" || len(name) > maxKeyLength:
		return fmt.Errorf("invalid name %.40q: want 1 to %d bytes", name, maxKeyLength)
	case !utf8.ValidString(name):
		return fmt.Errorf("invalid name %q: want valid UTF-8", name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("invalid name %q: want no control characters", name)
	case open > 1 || open != shut || open == 1 && strings.Index(name, "}") < strings.Index(name, "{")+2:
		return fmt.Errorf("invalid name %q: want no braces, or one hash tag such as {api}", name)
	}
	return nil
}

// hashTag returns the part of a name that decides its Redis Cluster slot.
func hashTag(name string) string {
	if _, rest, ok := strings.Cut(name, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			return tag
		}
	}
	return name
}
