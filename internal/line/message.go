package line

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Message is what asynq stores of a task, in the field msg of its hash.
type Message struct {
	Type     string
	Payload  []byte
	Headers  map[string]string
	MaxRetry int // as asynq counts: a producer may have asked for another number
	Retried  int
	Deadline time.Time // zero: none
	// Retention is how long asynq keeps the task, with its result, once it is done.
	Retention time.Duration
	// LastError is the error that ended the last attempt, and FailedAt is when it ended.
	LastError string
	FailedAt  time.Time
}

// ErrNoMessage says that a task's hash has no message that asynq could have written.
var ErrNoMessage = errors.New("no message of asynq")

// The fields of asynq's TaskMessage.
const (
	fieldType      = 1
	fieldPayload   = 2
	fieldRetry     = 5
	fieldRetried   = 6
	fieldError     = 7
	fieldDeadline  = 9
	fieldFailedAt  = 11
	fieldRetention = 12
	fieldHeaders   = 15
)

// ParseMessage reads a message. The payload and the texts do not share memory with it.
func ParseMessage(text string) (Message, error) {
	var m Message
	wrong := func(n int) (Message, error) {
		return Message{}, fmt.Errorf("%w: %w", ErrNoMessage, protowire.ParseError(n))
	}
	if text == "" {
		return Message{}, ErrNoMessage
	}
	for b := []byte(text); len(b) > 0; {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return wrong(n)
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(field, kind, b); n < 0 {
			return wrong(n)
		}
		value := b[:n]
		b = b[n:]
		switch kind {
		case protowire.VarintType:
			v, _ := protowire.ConsumeVarint(value)
			m.number(field, int64(v))
		case protowire.BytesType:
			v, _ := protowire.ConsumeBytes(value)
			m.text(field, v)
		}
	}
	return m, nil
}

func (m *Message) number(field protowire.Number, v int64) {
	switch field {
	case fieldRetry:
		m.MaxRetry = int(int32(v))
	case fieldRetried:
		m.Retried = int(int32(v))
	case fieldDeadline:
		if v > 0 {
			m.Deadline = time.Unix(v, 0)
		}
	case fieldFailedAt:
		if v > 0 {
			m.FailedAt = time.Unix(v, 0)
		}
	case fieldRetention:
		m.Retention = time.Duration(v) * time.Second
	}
}

func (m *Message) text(field protowire.Number, v []byte) {
	switch field {
	case fieldType:
		m.Type = string(v)
	case fieldPayload:
		m.Payload = v
	case fieldError:
		m.LastError = string(v)
	case fieldHeaders:
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		key, value := mapEntry(v)
		m.Headers[key] = value
	}
}

// mapEntry reads an entry of a map from text to text.
func mapEntry(b []byte) (key, value string) {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 || kind != protowire.BytesType {
			return key, value
		}
		v, size := protowire.ConsumeBytes(b[n:])
		if size < 0 {
			return key, value
		}
		if field == 1 {
			key = string(v)
		} else {
			value = string(v)
		}
		b = b[n+size:]
	}
	return key, value
}

// WithError returns the message of a task with the error of an attempt that ended at that time,
// as asynq would write it. A text that is not a message stays as it is.
func WithError(text, said string, at time.Time) string {
	out := make([]byte, 0, len(text)+len(said)+16)
	for b := []byte(text); len(b) > 0; {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return text
		}
		size := protowire.ConsumeFieldValue(field, kind, b[n:])
		if size < 0 {
			return text
		}
		if field != fieldError && field != fieldFailedAt {
			out = append(out, b[:n+size]...)
		}
		b = b[n+size:]
	}
	out = protowire.AppendString(protowire.AppendTag(out, fieldError, protowire.BytesType), said)
	out = protowire.AppendVarint(protowire.AppendTag(out, fieldFailedAt, protowire.VarintType), uint64(at.Unix()))
	return string(out)
}
