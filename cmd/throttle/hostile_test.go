package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// hostiles are texts that act where they are shown as they are.
var hostiles = map[string]string{
	"line feed": "a\nFORGED", "carriage return": "a\rFORGED", "both": "a\r\nFORGED", "form feed": "a\fFORGED", "vertical tab": "a\vFORGED",
	"next line": "a\u0085FORGED", "line separator": "a\u2028FORGED", "paragraph separator": "a\u2029FORGED",
	"clear": "\x1b[2J", "cursor": "\x1b[1;1HFORGED", "color": "\x1b[31mred", "title": "\x1b]0;title\x07", "link": "\x1b]8;;http://evil.example\x1b\\a",
	"clipboard": "\x1b]52;c;Y3VybA==\x07", "reset": "\x1bc", "device control": "\x1bP$q\x1b\\", "C1 control sequence": "\u009b2J", "C1 of one byte": "\x9b2J",
	"C1 command": "\u009d0;x\u009c", "bell": "\a\a", "backspace": "abc\b\b\bxyz", "delete": "a\x7f", "null": "a\x00b", "escape at the end": "a\x1b",
	"right to left": "\u202eelif", "embedding": "\u202ax\u202c", "isolate": "\u2066x\u2069", "marks": "\u200fx\u200e\u061c", "deprecated": "\u206ax", "tab": "a\tb",
	"shift out": "\x0e lqk \x0f", "not UTF-8": "a\xff\xfeb", "half a rune": "a\xe6\x9d", "substitute": "\x1a", "locking": "\x13",
}

// acts says whether output does something on a terminal or in a log.
func acts(out string) bool {
	return strings.ContainsFunc(out, func(r rune) bool {
		return r != '\n' && (unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r) || unicode.Is(unicode.Bidi_Control, r) ||
			r >= 0x206a && r <= 0x206f || r == unicode.ReplacementChar)
	}) || slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "FORGED") })
}

// TestHostileTexts: as a job's id, type, queue and error, and as a client's id, each of them stands in what the commands print and does nothing.
func TestHostileTexts(t *testing.T) {
	s := newSite(t)
	queue := asynq.NewClientFromRedisClient(s.rdb)
	errs := map[string]error{}
	for name, text := range hostiles {
		if strings.ToValidUTF8(text, "") != text {
			continue // asynq's encoding does not take it as an id or a type
		}
		errs["failed "+name] = errors.New(text)
		for _, archived := range []int{0, 1} {
			_, err := queue.Enqueue(asynq.NewTask("fails", []byte("failed "+name)), asynq.TaskID(fmt.Sprintf("failed %d %s", archived, text)), asynq.MaxRetry(archived))
			s.check(err)
		}
		_, err := queue.Enqueue(asynq.NewTask("type "+text, []byte(text)), asynq.TaskID("id "+text), asynq.Queue("queue "+strings.ToLower(text)), asynq.ProcessIn(time.Hour))
		s.check(err)
	}
	server := asynq.NewServerFromRedisClient(s.rdb, asynq.Config{
		LogLevel: asynq.FatalLevel, Concurrency: 10, RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
	})
	s.check(server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error { return errs[string(task.Payload())] })))
	inspector := asynq.NewInspectorFromRedisClient(s.rdb)
	timeout := time.After(20 * time.Second)
	for {
		info, err := inspector.GetQueueInfo("default")
		s.check(err)
		if info.Retry+info.Archived == 2*len(errs) {
			break
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-timeout:
			t.Fatalf("%+v", info)
		}
	}
	server.Shutdown()

	l := s.limiter("each", throttle.Rate{Type: throttle.PerClient, Permits: 5, Interval: time.Hour}, 1)
	for _, text := range hostiles {
		z := s.rdb.ZRangeWithScores(t.Context(), "{each}:clients", 0, 0).Val()[0]
		z.Member = text
		s.check(s.rdb.ZAdd(t.Context(), "{each}:clients", z).Err())
	}
	check := func(args ...string) {
		t.Helper()
		for _, more := range [][]string{nil, {"--json"}} {
			got := s.run(append(args, more...)...)
			if out := got.stdout + got.stderr; acts(out) || out == "" {
				t.Errorf("%q: status %d: %q", args, got.status, out)
			}
			for line := range strings.Lines(got.stdout) {
				if more != nil && !json.Valid([]byte(line)) {
					t.Errorf("%q: no JSON: %q", args, line)
				}
			}
		}
	}
	for _, args := range [][]string{{"list"}, {"top"}, {"show", l.Name()}, {"pause", l.Name(), "1s"}, {"jobs", "--max", "0"}, {"jobs", "--state", "archived"}} {
		check(args...)
	}
	for _, text := range hostiles {
		for _, args := range [][]string{
			{"explain", "--task", "id " + text}, {"explain", "--task", "failed 0 " + text}, {"explain", "--task", "failed 1 " + text}, {"explain", "--task", "none " + text},
			{"explain", "--task", "x", "--queue", text}, {"show", text}, {"show", "each", "--value", text}, {"set", text, "1/1s"}, {"set", "each", text},
			{"pause", "each", text}, {"delete", text, "--yes"}, {"list", "--match", text}, {"list", text}, {text}, {"set", "each", "1/1s", "--window", text},
			{"list", "--" + text}, {"list", "--config", text}, {"jobs", "--limit", text}, {"jobs", "--queue", text}, {"jobs", "--type", text}, {"jobs", "--state", text},
			{"jobs", "--after", text}, {"retry", text}, {"retry", "--archived", "--queue", text}, {"retry", "--failed", "--type", text}, {"check", text},
		} {
			got := s.run(args...)
			if out := got.stdout + got.stderr; acts(out) || out == "" {
				t.Errorf("%q: status %d: %q", args, got.status, out)
			}
		}
	}
}

// TestHostileLines: what check quotes of a file does nothing, either.
func TestHostileLines(t *testing.T) {
	s := newSite(t)
	for _, text := range hostiles {
		if !utf8.ValidString(text) {
			continue // JSON has none such: a line that does is refused whole
		}
		quoted, err := json.Marshal(text)
		s.check(err)
		for _, format := range []string{`{"type":%s}`, `{"type":"x","id":%s}`, `{"type":"x","queue":%s}`, `{%s:1}`, `{"type":"http:request","payload":{"url":%s}}`, `{"type":"http:request","payload":{%s:1}}`,
			`{"type":"bill:x","payload":{"account":"a","tokens":%s}}`, `{"type":"bill:x","payload":{"account":%s,"tokens":1}}`} {
			for _, more := range [][]string{nil, {"--json"}} {
				got := s.checked(checkYAML, []string{fmt.Sprintf(format, quoted)}, more...)
				if out := got.stdout + got.stderr; acts(out) || out == "" {
					t.Errorf("%s of %q: status %d: %q", format, text, got.status, out)
				}
			}
		}
	}
}
