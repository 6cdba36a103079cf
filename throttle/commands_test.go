package throttle

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

var writeCommands = flag.Bool("commands", false, "write testdata/commands.txt again")

// monitor has the output of Redis's MONITOR. Arguments that differ from run to run are shown by
// kind: # is a number, * a text of bytes.
type monitor struct {
	t     *testing.T
	rdb   *redis.Client
	lines *bufio.Scanner
}

func newMonitor(t *testing.T, addr string, rdb *redis.Client) *monitor {
	conn, err := net.Dial("tcp", addr)
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	check(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	m := &monitor{t: t, rdb: rdb, lines: bufio.NewScanner(conn)}
	if _, err := fmt.Fprint(conn, "MONITOR\r\n"); err != nil || !m.lines.Scan() || m.lines.Text() != "+OK" {
		t.Fatalf("MONITOR: %v, %q", err, m.lines.Text())
	}
	return m
}

// of returns the commands that came until what has run, those of scripts with a "  " before them.
// It leaves out what a connection needs once.
func (m *monitor) of(what string) string {
	m.t.Helper()
	check(m.t, m.rdb.Echo(m.t.Context(), what).Err())
	out := "== " + what + "\n"
	for m.lines.Scan() {
		head, rest, _ := strings.Cut(m.lines.Text(), "] ")
		var words []string
		for rest != "" {
			quoted, err := strconv.QuotedPrefix(rest)
			check(m.t, err)
			word, err := strconv.Unquote(quoted)
			check(m.t, err)
			words, rest = append(words, kindOf(word)), strings.TrimPrefix(rest[len(quoted):], " ")
		}
		words[0] = strings.ToUpper(words[0])
		switch {
		case words[0] == "ECHO":
			return out
		case strings.HasSuffix(head, " lua"):
			out += "  " + strings.Join(words, " ") + "\n"
		case words[0] == "EVALSHA" || words[0] == "EVAL":
			out += strings.Join(append([]string{"script"}, words[2:]...), " ") + "\n"
		case words[0] != "HELLO" && words[0] != "CLIENT" && words[0] != "SCRIPT" && words[0] != "PING" && words[0] != "SUBSCRIBE":
			out += strings.Join(words, " ") + "\n"
		}
	}
	m.t.Fatalf("MONITOR ended: %v", m.lines.Err())
	return ""
}

var (
	number = regexp.MustCompile(`-?[0-9]+(\.[0-9]+)?`)
	reply  = regexp.MustCompile(`:reply:[0-9a-f]+:`) // of one run
)

func kindOf(word string) string {
	for _, c := range []byte(word) {
		if c < ' ' || c > '~' {
			return "*"
		}
	}
	return strings.ReplaceAll(number.ReplaceAllString(reply.ReplaceAllString(word, ":reply:"), "#"), " ", "_")
}

// TestCommands: what a limit, a group and the commands of operators cost in Redis, down to each command
// of each script. It is the same as before limits could adapt, be shared or be in flight, except that
// UpdateRate reads one field more: whoever does not use these pays nothing.
//
//	go test -run TestCommands ./throttle -commands    writes the list again
func TestCommands(t *testing.T) {
	addr := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	m := newMonitor(t, addr, rdb)
	m.steps() // Redis has the scripts now
	got, took := m.steps()
	for tries := 0; took > slowStep; tries++ { // what a client has not checked for a while, it checks again
		if tries == 100 {
			t.Fatalf("in each try some step took more than %v", slowStep)
		}
		got, took = m.steps()
	}
	if *writeCommands {
		check(t, os.WriteFile("testdata/commands.txt", []byte(got), 0o644))
	}
	want, err := os.ReadFile("testdata/commands.txt")
	check(t, err)
	if got != string(want) {
		t.Errorf("the commands are not those of testdata/commands.txt:\n%s", got)
	}
}

// slowStep is a fifth of the time between a client's checks.
const slowStep = 20 * time.Millisecond

// steps makes a new client use limits, and returns the commands of each step, and how long the
// slowest step took.
func (m *monitor) steps() (commands string, slowest time.Duration) {
	t, ctx := m.t, m.t.Context()
	t.Helper()
	keys, err := m.rdb.Keys(ctx, "*").Result()
	check(t, err)
	if len(keys) > 0 {
		check(t, m.rdb.Del(ctx, keys...).Err())
	}
	c, err := New(m.rdb, Options{ID: "one"})
	check(t, err)
	defer func() { check(t, c.Close()) }()
	const guard = 10 * time.Second // no permit is late
	warm, err := c.LimiterWithRate("warm", Rate{Permits: 30, Interval: time.Hour, Guard: guard})
	check(t, err)
	for range 30 { // the client finds out how far away Redis is
		check(t, warm.Acquire(ctx, 1))
	}
	m.of("warm")
	l, err := c.LimiterWithRate("api", Rate{Permits: 3, Interval: time.Hour, Guard: guard})
	check(t, err)
	each, err := c.LimiterWithRate("each", Rate{Permits: 5, Interval: time.Hour, Guard: guard, Type: PerClient})
	check(t, err)
	for _, step := range []struct {
		what string
		do   func() (bool, error)
	}{
		{"Acquire, the first one", func() (bool, error) { return true, l.Acquire(ctx, 1) }},
		{"Acquire, the next one", func() (bool, error) { return true, l.Acquire(ctx, 1) }},
		{"TryAcquire, the last permit", func() (bool, error) { return l.TryAcquire(ctx, 1) }},
		{"TryAcquire, none is left", func() (bool, error) { ok, err := l.TryAcquire(ctx, 1); return !ok, err }},
		{"Release", func() (bool, error) { return true, l.Release(ctx, 1) }},
		{"AvailablePermits", func() (bool, error) { n, err := l.AvailablePermits(ctx); return n == 1, err }},
		{"Acquire of a limit for each client", func() (bool, error) { return true, each.Acquire(ctx, 1) }},
		{"Acquire of a group", func() (bool, error) {
			g, err := c.Group(l, each)
			if err != nil {
				return false, err
			}
			return true, g.Acquire(ctx, 1)
		}},
		{"UpdateRate", func() (bool, error) { return l.UpdateRate(ctx, Rate{Permits: 4, Interval: time.Hour, Guard: guard}) }},
		{"Pause", func() (bool, error) { return true, l.Pause(ctx, time.Hour) }},
		{"Resume", func() (bool, error) { return true, l.Resume(ctx) }},
		{"Config", func() (bool, error) { r, err := l.Config(ctx); return r.Permits == 4, err }},
	} {
		began := time.Now()
		ok, err := step.do()
		check(t, err)
		if !ok {
			t.Fatalf("%s: not as expected", step.what)
		}
		commands += m.of(step.what)
		slowest = max(slowest, time.Since(began))
	}
	fields, err := m.rdb.HKeys(ctx, "api").Result()
	check(t, err)
	slices.Sort(fields)
	return commands + "== fields\n" + strings.Join(fields, " ") + "\n", slowest
}
