package producer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// MaxLine is the longest job line in bytes. A task passes through the memory of Redis several
// times. Larger data belongs into a store of its own, with its address in the payload.
const MaxLine = 1 << 20

// ParseJob parses one job line, a JSON object with the keys type, payload, id, queue, headers,
// max_retry, timeout, process_in, unique_for and retention. Only type is required. It is strict,
// because a misspelt key would silently give a job other properties than its author thinks: keys
// are exact, known and given once, and nothing follows the object. An explicit zero means zero,
// not the default. The error is a [*JobError]. The job shares no memory with line.
func ParseJob(line []byte) (Job, error) {
	if len(line) > MaxLine {
		return Job{}, lineTooLong(int64(len(line)))
	}
	if !utf8.Valid(line) {
		return Job{}, &JobError{"", "is not valid UTF-8"}
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber() // a huge number as a float64 is an error of its own, which quotes all of it
	open, err := dec.Token()
	if err != nil {
		return Job{}, notJSON(err)
	}
	if open != json.Delim('{') {
		return Job{}, &JobError{"", `is not a JSON object; a job looks like {"type":"http:request","payload":{...}}`}
	}
	var job Job
	seen := make(map[string]bool, 8)
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return Job{}, notJSON(err)
		}
		key, ok := token.(string)
		if !ok {
			return Job{}, &JobError{"", "is not JSON: an object key must be a string"}
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return Job{}, notJSON(err)
		}
		if seen[key] {
			return Job{}, &JobError{clip(key), "is given twice; give it once"}
		}
		seen[key] = true
		if err := job.set(key, value); err != nil {
			return Job{}, err
		}
	}
	if _, err := dec.Token(); err != nil {
		return Job{}, notJSON(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return Job{}, &JobError{"", "goes on after the job; write one JSON object a line"}
	}
	return job, job.Validate()
}

// set sets the field of a key to the value in a job line.
func (j *Job) set(key string, value json.RawMessage) (err error) {
	switch key {
	case "type":
		j.Type, err = text(key, value)
	case "payload":
		j.Payload = value
	case "id":
		j.ID, err = text(key, value)
	case "queue":
		j.Queue, err = text(key, value)
	case "headers":
		j.Headers, err = headers(value)
	case "max_retry":
		var n *int
		if json.Unmarshal(value, &n) != nil || n == nil || *n < 0 {
			return wrongKind(key, value, "a whole number from 0 on")
		}
		if j.MaxRetry = *n; *n == 0 {
			j.MaxRetry = None
		}
	case "timeout":
		if j.Timeout, err = duration(key, value); err == nil && j.Timeout < time.Second {
			err = tooShort(key, j.Timeout)
		}
	case "process_in":
		j.ProcessIn, err = duration(key, value)
	case "unique_for":
		if j.UniqueFor, err = duration(key, value); err == nil && j.UniqueFor < time.Second {
			err = tooShort(key, j.UniqueFor)
		}
	case "retention":
		if j.Retention, err = duration(key, value); err == nil && j.Retention == 0 {
			j.Retention = None
		}
	default:
		return &JobError{clip(key), "is not a key of a job; the keys are type, payload, id, queue, headers, " +
			"max_retry, timeout, process_in, unique_for and retention"}
	}
	return err
}

func text(key string, value json.RawMessage) (string, error) {
	var s *string
	if json.Unmarshal(value, &s) != nil || s == nil {
		return "", wrongKind(key, value, "a string")
	}
	if strings.TrimSpace(*s) == "" {
		return "", &JobError{key, "is empty; give it a value or leave it out"}
	}
	return *s, nil
}

// headers reads an object of strings. No error quotes a value, which may be a token.
func headers(value json.RawMessage) (map[string]string, error) {
	var object map[string]json.RawMessage
	if json.Unmarshal(value, &object) != nil || object == nil {
		return nil, &JobError{"headers", `is not an object of strings such as {"tenant":"a"}`}
	}
	read := make(map[string]string, len(object))
	for name, text := range object {
		var s *string
		if json.Unmarshal(text, &s) != nil || s == nil {
			return nil, &JobError{"headers", fmt.Sprintf(`the value of %q is not a string; want an object of strings such as {"tenant":"a"}`, clip(name))}
		}
		read[name] = *s
	}
	return read, nil
}

func duration(key string, value json.RawMessage) (time.Duration, error) {
	const want = `a duration such as "30s", "5m" or "1h"`
	var s string
	if json.Unmarshal(value, &s) != nil {
		return 0, wrongKind(key, value, want)
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, wrongKind(key, value, want)
	}
	return d, nil
}

func wrongKind(key string, value json.RawMessage, want string) error {
	return &JobError{key, fmt.Sprintf("%s is not %s", clip(string(value)), want)}
}

func notJSON(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return &JobError{"", "is not JSON: it ends in the middle of the job"}
	}
	return &JobError{"", fmt.Sprintf("is not JSON: %v", err)}
}

func lineTooLong(n int64) error {
	return &JobError{"", fmt.Sprintf(
		"is %d bytes long, at most %d are taken; store large data elsewhere and put its address into the payload", n, MaxLine)}
}
