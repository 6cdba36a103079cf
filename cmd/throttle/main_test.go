package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/embedded"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outcome is what a run of the command left behind.
type outcome struct {
	status         int
	stdout, stderr string
}

func runCommand(ctx context.Context, args ...string) outcome {
	var stdout, stderr bytes.Buffer
	status := cli.Run(ctx, newCommand(), args, strings.NewReader(""), &stdout, &stderr)
	return outcome{status, stdout.String(), stderr.String()}
}

// site is a Redis, and the command run on it.
type site struct {
	testing.TB
	addr   string
	rdb    *redis.Client
	client *throttle.Client
}

func newSite(t testing.TB) *site {
	t.Helper()
	return newServer(t).site
}

// server is a Redis that stops and restarts, and the site on it.
type server struct {
	*redistest.Server
	site *site
}

func newServer(t testing.TB) server {
	t.Helper()
	redisServer := redistest.New(t)
	s := &site{TB: t, addr: redisServer.Addr}
	s.rdb = redis.NewClient(&redis.Options{Addr: s.addr})
	t.Cleanup(func() { s.rdb.Close() })
	var err error
	s.client, err = throttle.New(s.rdb, throttle.Options{})
	s.check(err)
	t.Cleanup(func() { s.check(s.client.Close()) })
	return server{redisServer, s}
}

func (s *site) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// run runs the command on the site's Redis.
func (s *site) run(args ...string) outcome {
	s.Helper()
	return runCommand(s.Context(), append(args, "--redis", s.addr)...)
}

// done runs the command, which has to succeed, and returns what it printed.
func (s *site) done(args ...string) string {
	s.Helper()
	got := s.run(args...)
	if got.status != cli.Done {
		s.Fatalf("throttle %s: status %d, standard error:\n%s", strings.Join(args, " "), got.status, got.stderr)
	}
	return got.stdout
}

// fails runs the command, which has to fail with this status and one line that has these words.
func (s *site) fails(status int, args, words []string) {
	s.Helper()
	expectFailure(s, s.run(args...), status, words)
}

func expectFailure(t testing.TB, got outcome, status int, words []string) {
	t.Helper()
	if got.status != status || got.stdout != "" || strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("status %d (want %d), standard output %q, standard error, of which one line is wanted:\n%s", got.status, status, got.stdout, got.stderr)
	}
	for _, w := range words {
		if !strings.Contains(got.stderr, w) {
			t.Errorf("%q does not mention %q", got.stderr, w)
		}
	}
}

// limiter makes a limiter with a rate, and uses that many permits of it.
func (s *site) limiter(name string, r throttle.Rate, used int64) *throttle.Limiter {
	s.Helper()
	l, err := s.client.Limiter(name)
	s.check(err)
	s.check(l.SetRate(s.Context(), r))
	if used > 0 {
		if ok, err := l.TryAcquire(s.Context(), used); err != nil || !ok {
			s.Fatalf("take %d of %q: %v, %v", used, name, ok, err)
		}
	}
	return l
}

// usage is the usage of a limiter, which has to exist.
func (s *site) usage(name string) operate.FleetUsage {
	s.Helper()
	found, err := operate.NewFleet(s.rdb).Inspect(s.Context(), name)
	s.check(err)
	if len(found) != 1 {
		s.Fatalf("no limiter is named %q", name)
	}
	return found[0]
}

// decode reads one line of JSON and refuses fields that T does not have.
func decode[T any](t testing.TB, line string) T {
	t.Helper()
	var v T
	d := json.NewDecoder(strings.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	return v
}

func perHour(n int64) throttle.Rate { return throttle.Rate{Permits: n, Interval: time.Hour} }

func TestHelpAndVersion(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{
			[]string{"--help"},
			[]string{"list", "show", "top", "set", "pin", "unpin", "pause", "resume", "delete", "explain", "completion", "--config", "--redis", "--json"},
		},
		{[]string{"--version"}, []string{"throttle version "}},
		{[]string{"set", "--help"}, []string{"--per-client", "--pin", "--guard", "--smooth", "--window", "--offset", "--keep-alive", "--yes", "100/1s"}},
		{[]string{"delete", "--help"}, []string{"--yes", "forget"}},
		{[]string{"explain", "--help"}, []string{"--task", "--queue"}},
		{[]string{"completion", "bash"}, []string{"throttle"}},
	} {
		got := runCommand(t.Context(), tt.args...)
		if got.status != cli.Done || got.stderr != "" {
			t.Errorf("%v: status %d, stderr %q", tt.args, got.status, got.stderr)
		}
		for _, want := range tt.want {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("%v does not mention %q:\n%s", tt.args, want, got.stdout)
			}
		}
	}
}

// TestBadUsage: each has one line on standard error that says what to do, before Redis is asked anything.
func TestBadUsage(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want []string
	}{
		{"no command", nil, []string{"want a command", "--help"}},
		{"unknown command", []string{"lst"}, []string{`"lst"`, "did you mean list", "--help"}},
		{"unknown flag", []string{"list", "--mach", "x"}, []string{"--mach", "--help"}},
		{"list with an argument", []string{"list", "x"}, []string{`"x"`, "list --help"}},
		{"negative maximum", []string{"list", "--max", "-1"}, []string{"--max -1", "0 for all"}},
		{"show nothing", []string{"show"}, []string{"NAME", "show --help"}},
		{"show two", []string{"show", "a", "b"}, []string{`"b"`}},
		{"set nothing", []string{"set", "a"}, []string{"RATE", "100/1s"}},
		{"set nonsense", []string{"set", "a", "fast"}, []string{`"fast"`, "100/1s"}},
		{"set zero", []string{"set", "a", "0/1s"}, []string{"permits 0", "1 to"}},
		{"pause without duration", []string{"pause", "a"}, []string{"DURATION", "30s"}},
		{"pause for nonsense", []string{"pause", "a", "soon"}, []string{`"soon"`, "30s"}},
		{"pause for nothing", []string{"pause", "a", "0s"}, []string{`"0s"`, "resume"}},
		{"pause for less", []string{"pause", "a", "-5s"}, []string{"-5", "--help"}},
		{"explain nothing", []string{"explain"}, []string{"--task", "--help"}},
		{"not an address", []string{"list", "--redis", "here"}, []string{`"here"`, "host:port"}},
		{"not a URL", []string{"list", "--redis", "redis://u:secret@host:port/x"}, []string{"@host:port/x", "rediss://"}},
		{"not a cluster's URL", []string{"list", "--redis", "http://host:1?addr=x:2"}, []string{"http://", "rediss://"}},
		{"explain an id", []string{"explain", "order-2"}, []string{`"order-2"`, `did you mean "--task order-2"? see throttle explain --help`}},
		{"explain --id", []string{"explain", "--id", "x"}, []string{"--id", `did you mean "--task"?`}},
		{"one hyphen", []string{"explain", "-task", "x"}, []string{"-task", `did you mean "--task"?`}},
		{"one hyphen, and the letter of another flag", []string{"list", "-help"}, []string{"-elp", "--help"}},
		{"one hyphen, for what another tool calls so", []string{"explain", "-id", "x"}, []string{`did you mean "--task"?`}},
		{"one hyphen and an equals sign", []string{"list", "-config=config.yaml"}, []string{`did you mean "--config"?`}},
		{"list a Redis", []string{"list", "redis://h:6379"}, []string{`did you mean "--redis redis://h:6379"?`}},
		{"list config", []string{"list", "config"}, []string{`did you mean "--config"?`}},
		{"list help", []string{"list", "help"}, []string{`did you mean "--help"?`}},
		{"jobs archived", []string{"jobs", "archived"}, []string{`did you mean "--state archived"?`}},
		{"list one", []string{"list", "stripe"}, []string{`did you mean "--match stripe"?`}},
		{"set in two words", []string{"set", "a", "10", "1s"}, []string{"one word, such as 10/1s"}},
		{"set --rate", []string{"set", "a", "--rate", "1/1s"}, []string{"RATE is an argument"}},
		{"set --type", []string{"set", "a", "1/1s", "--type", "per_client"}, []string{"write --per-client, or --per-client=false"}},
		{"set an unknown window", []string{"set", "a", "--window", "day"}, []string{`--window "day": want sliding or calendar`}},
		{"set a rate and a weight", []string{"set", "a", "1/1s", "--weight", "acme=1"}, []string{"one at a time"}},
		{"unpause", []string{"unpause", "a"}, []string{"did you mean resume?"}},
		{"rm", []string{"rm", "a"}, []string{"did you mean delete?"}},
		{"version", []string{"version"}, []string{"did you mean --version?"}},
		{"an empty variable", []string{"list", "--redis", ""}, []string{"--redis is empty"}},
		{"an empty queue", []string{"retry", "--archived", "--queue="}, []string{"--queue is empty"}},
		{"no such file", []string{"list", "--config", "missing.yaml"}, []string{"missing.yaml"}},
		{"bad file", []string{"list", "--config", configFile(t, "redis: { adrs: [] }\n")}, []string{"config.yaml:1:", "adrs", "addrs"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := runCommand(t.Context(), tt.args...)
			expectFailure(t, got, cli.Usage, tt.want)
			if strings.Contains(got.stderr, "secret") {
				t.Errorf("the password is in the error: %s", got.stderr)
			}
		})
	}
}

// configFile returns the path of a file with these contents.
func configFile(t *testing.T, contents string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestUnreachableRedis: the error names the address, and the flags to correct it.
func TestUnreachableRedis(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:1", "redis://127.0.0.1:1"} {
		expectFailure(t, runCommand(t.Context(), "list", "--redis", addr), cli.Failed, []string{"127.0.0.1:1", "--redis", "redis.addrs"})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	expectFailure(t, runCommand(ended, "list", "--redis", "127.0.0.1:1"), cli.Failed, []string{"interrupted"})
}

// TestConnections: by address, by URL, with a password, by the configuration here and elsewhere.
func TestConnections(t *testing.T) {
	s := newSite(t)
	s.limiter("api", perHour(10), 0)
	s.check(s.rdb.ConfigSet(t.Context(), "requirepass", "open sesame").Err())
	t.Chdir(t.TempDir())
	url := "redis://:open%20sesame@" + s.addr
	for _, args := range [][]string{
		{"list", "--redis", url},
		{"list", "--redis", url + "/0"},
		{"list", "--config", configFile(t, fmt.Sprintf("redis: { addrs: [%q], password: open sesame }\n", s.addr))},
		{"list", "--config", configFile(t, "redis: { password: open sesame }\n"), "--redis", s.addr},
	} {
		if got := runCommand(t.Context(), args...); got.status != cli.Done || !strings.Contains(got.stdout, "api") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	t.Setenv("REDIS_PASSWORD", "open sesame") // where ps does not show it
	if got := runCommand(t.Context(), "list", "--redis", "redis://default@"+s.addr); got.status != cli.Done || !strings.Contains(got.stdout, "api") {
		t.Errorf("password in the environment: %+v", got)
	}
	if got := runCommand(t.Context(), "list", "--redis", url+"/1"); got.status != cli.Done || !strings.Contains(got.stdout, "no limits") {
		t.Errorf("database 1: %+v", got)
	}
	t.Setenv("REDIS_PASSWORD", "")
	expectFailure(t, runCommand(t.Context(), "list", "--redis", s.addr), cli.Failed, []string{s.addr, "NOAUTH", "REDIS_PASSWORD"})
	expectFailure(t, runCommand(t.Context(), "list", "--redis", "rediss://"+s.addr), cli.Failed, []string{s.addr})
	s.check(os.WriteFile("config.yaml", []byte(fmt.Sprintf("redis: { addrs: [%q], password: open sesame }\n", s.addr)), 0o600))
	if got := runCommand(t.Context(), "list"); got.status != cli.Done || !strings.Contains(got.stdout, "api") || !strings.HasPrefix(got.stderr, "using config.yaml") {
		t.Errorf("config.yaml in the working directory: %+v", got)
	}
	if got := runCommand(t.Context(), "list", "--config", "config.yaml"); got.status != cli.Done || strings.Contains(got.stderr, "using") {
		t.Errorf("config.yaml by its name: %+v", got)
	}
}

// TestEmbeddedRedis: all verbs work on the Redis in memory that worker --embedded starts.
func TestEmbeddedRedis(t *testing.T) {
	t.Chdir(t.TempDir())
	redisServer, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer redisServer.Close()
	queue := asynq.NewClient(asynq.RedisClientOpt{Addr: redisServer.Addr()})
	defer queue.Close()
	if _, err := queue.Enqueue(asynq.NewTask("x", nil), asynq.TaskID("job")); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"set", "api", "10/1h", "--create"}, "no such limit"},
		{[]string{"set", "each", "10/1h", "--per-client", "--create"}, "10/1h per_client"},
		{[]string{"pin", "api"}, "pinned"},
		{[]string{"pause", "api", "1h"}, `paused (1h|59m5\ds)`},
		{[]string{"list"}, ", pinned"},
		{[]string{"show", "api"}, "for another "},
		{[]string{"top"}, "0 of 10"},
		{[]string{"resume", "api"}, "10 available"},
		{[]string{"unpin", "api"}, "10 available"},
		{[]string{"explain", "--task", "job"}, "no job is before it"},
		{[]string{"delete", "api", "--yes"}, "no such limit"},
	} {
		got := runCommand(t.Context(), append(tt.args, "--redis", redisServer.Addr())...)
		if got.status != cli.Done || !regexp.MustCompile(tt.want).MatchString(got.stdout) {
			t.Errorf("%v: %+v, want %q", tt.args, got, tt.want)
		}
	}
}

// TestCluster: several addresses are a cluster, and every verb finds what it wants on any master.
func TestCluster(t *testing.T) {
	t.Chdir(t.TempDir())
	addrs := redistest.StartCluster(t)
	for _, address := range []string{strings.Join(addrs, ","), "redis://" + addrs[0] + "?addr=" + addrs[1]} {
		run := func(args ...string) outcome {
			t.Helper()
			got := runCommand(t.Context(), append(args, "--redis", address)...)
			if got.status != cli.Done {
				t.Fatalf("%v: %+v", args, got)
			}
			return got
		}
		for i := range 10 {
			run("set", fmt.Sprint("limit", i), "10/1s", "--pin", "--create")
		}
		if got := run("list"); got.stderr != "10 limits\n" || strings.Count(got.stdout, "pinned") != 10 {
			t.Errorf("listed %q and %q", got.stdout, got.stderr)
		}
		run("pause", "limit3", "30s")
		if got := run("show", "limit3"); !strings.Contains(got.stdout, "paused      for another") {
			t.Errorf("shown:\n%s", got.stdout)
		}
		queue := asynq.NewClient(asynq.RedisClusterClientOpt{Addrs: addrs})
		if _, err := queue.Enqueue(asynq.NewTask("x", nil), asynq.TaskID("job")); err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
			t.Fatal(err)
		}
		if err := queue.Close(); err != nil {
			t.Fatal(err)
		}
		if got := run("explain", "--task", "job"); !strings.Contains(got.stdout, "is pending") {
			t.Errorf("explained:\n%s", got.stdout)
		}
		for i := range 10 {
			run("delete", fmt.Sprint("limit", i), "--yes")
		}
	}
}
