// Package expr reads the short expressions of config.yaml: paths into a task, what a job costs,
// and patterns of task types. Package config refuses invalid ones. Package plan applies them to
// tasks.
package expr

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Task is the part of a task that expressions can read.
type Task struct {
	Type    string
	Queue   string
	Payload []byte
	Headers map[string]string
}

// Selector picks a value of a task: payload.PATH, header.NAME or queue.
type Selector struct {
	source string // "payload", "header" or "queue"
	path   []string
}

// ParseSelector parses a Selector. Its error says what would be right.
func ParseSelector(s string) (Selector, error) {
	source, rest, dotted := strings.Cut(s, ".")
	sel := Selector{source: source}
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
				return Selector{}, fmt.Errorf("invalid path %q: a name between dots is missing", s)
			}
		}
		return sel, nil
	}
	return Selector{}, fmt.Errorf("invalid path %q: want payload.PATH, header.NAME or queue", s)
}

// String returns the selector as configuration files write it.
func (s Selector) String() string {
	return strings.Join(append([]string{s.source}, s.path...), ".")
}

// Field returns the field of a payload that has the value, or "" if the value is not in the
// payload.
func (s Selector) Field() string {
	if s.source != "payload" {
		return ""
	}
	return s.path[0]
}

// Pick returns the value as text. Numbers keep the digits with which they are written.
func (s Selector) Pick(t Task) (string, error) {
	switch s.source {
	case "queue":
		return t.Queue, nil
	case "header":
		v, ok := t.Headers[s.path[0]]
		if !ok {
			return "", fmt.Errorf("the task has no header %q", s.path[0])
		}
		return v, nil
	}
	raw := json.RawMessage(t.Payload)
	for i, name := range s.path {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			return "", fmt.Errorf("%s is not a JSON object", Selector{s.source, s.path[:i]})
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
