package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// hostile is text that would make a line of its own, clear a terminal, and reverse its text.
const hostile = "a\nFORGED 1/1s overall\r\x1b[2J\x1b]0;x\x07\u009b2J\u202e\u2028\tb"

// plainLines checks that no line of the output acts on a terminal, or is one that a stranger made.
func plainLines(t *testing.T, out string) {
	t.Helper()
	for line := range strings.SplitSeq(out, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "FORGED") || strings.ContainsFunc(line, func(r rune) bool {
			return unicode.IsControl(r) || r == 0x2028 || r == 0x202e
		}) {
			t.Errorf("a line acts: %q", line)
		}
	}
}

// TestNamesOfStrangers: the contents of jobs, clients and names do nothing to a person who
// reads them.
func TestNamesOfStrangers(t *testing.T) {
	s := newSite(t)
	queue := asynq.NewClientFromRedisClient(s.rdb)
	id := "id" + hostile
	_, err := queue.Enqueue(asynq.NewTask("type"+hostile, nil), asynq.TaskID(id), asynq.Queue("queue"+strings.ToLower(hostile)))
	s.check(err)
	failed := "failed" + hostile
	_, err = queue.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(failed), asynq.ProcessIn(time.Hour))
	s.check(err)
	// Names cannot have control characters, but can reverse text. Ids of clients come from
	// anybody's process.
	name := "turned\u202e:\u2066acme"
	l, err := s.client.Limiter(name)
	s.check(err)
	s.check(l.SetRate(t.Context(), throttle.Rate{Type: throttle.PerClient, Permits: 5, Interval: time.Hour}))
	ok, err := l.TryAcquire(t.Context(), 1)
	s.check(err)
	clients := s.rdb.ZRangeWithScores(t.Context(), "{"+name+"}:clients", 0, -1).Val()
	if !ok || len(clients) != 1 {
		t.Fatalf("acquired: %t, clients %v", ok, clients)
	}
	clients[0].Member = hostile
	s.check(s.rdb.ZAdd(t.Context(), "{"+name+"}:clients", clients[0]).Err())

	for _, args := range [][]string{
		{"list"}, {"show", name}, {"top"}, {"pause", name, "1s"}, {"resume", name},
		{"explain", "--task", id}, {"explain", "--task", failed},
	} {
		got := s.run(args...)
		if got.status != cli.Done {
			t.Errorf("%q: status %d: %s", args, got.status, got.stderr)
		}
		plainLines(t, got.stdout+got.stderr)
		asJSON := s.run(append(args, "--json")...)
		plainLines(t, asJSON.stdout+asJSON.stderr)
		for line := range strings.SplitSeq(strings.TrimSpace(asJSON.stdout), "\n") {
			var v map[string]any
			if err := json.Unmarshal([]byte(line), &v); err != nil {
				t.Errorf("%q: %v: %q", args, err, line)
			}
			if n, found := v["name"]; found && n != name || args[0] == "explain" && v["id"] != id && v["id"] != failed {
				t.Errorf("%q: JSON has lost a name: %q", args, line)
			}
		}
	}
	for _, args := range [][]string{
		{"show", hostile}, {"show", "turned\u202e"}, {"explain", "--task", "no" + hostile}, {"explain", "--task", "x", "--queue", hostile}, {hostile}, {"list", "--match", hostile}, {"show", "a", hostile}, {"pause", name, hostile},
	} {
		got := s.run(args...)
		plainLines(t, got.stdout+got.stderr)
	}
	if shown := s.done("show", name); !strings.Contains(shown, `turned\u202e:\u2066acme`) || !strings.Contains(shown, `a\nFORGED`) {
		t.Errorf("escapes are missing in:\n%s", shown)
	}
}

// TestNamesThatArePlain: names of all languages are shown as they are.
func TestNamesThatArePlain(t *testing.T) {
	s := newSite(t)
	const name = `Zürich "東京" \n 50% 👩‍🔬:é`
	l, err := s.client.Limiter(name)
	s.check(err)
	s.check(l.SetRate(t.Context(), throttle.Rate{Permits: 5, Interval: time.Hour}))
	for _, args := range [][]string{{"list"}, {"show", name}, {"top"}} {
		if out := s.done(args...); !strings.Contains(out, name) {
			t.Errorf("%s: no %q in:\n%s", args[0], name, out)
		}
	}
}
