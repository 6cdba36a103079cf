package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// write puts text into a file of the test's own and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkError fails the test unless the command exited with the status and said
// one line on standard error that contains all of want.
func checkError(t *testing.T, got outcome, status int, want ...string) {
	t.Helper()
	if got.status != status {
		t.Errorf("status %d, want %d", got.status, status)
	}
	if strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("want one line on standard error, got:\n%s", got.stderr)
	}
	for _, w := range want {
		if !strings.Contains(got.stderr, w) {
			t.Errorf("%q does not mention %q", got.stderr, w)
		}
	}
}

func TestConfigMistakes(t *testing.T) {
	limit := func(rate string) string {
		return fmt.Sprintf("limits:\n  api: { rate: %s }\njobs:\n  \"http:request\": { limits: [api] }\n", rate)
	}
	tests := []struct {
		name, config string
		want         []string
	}{
		{"unknown key", "limits: {}\nlogs: {}\n", []string{":2:1:", "logs", "log"}},
		{"rate without interval", limit("100/"), []string{":2:", "limits.api.rate", "100/1s"}},
		{"rate 0", limit("0/1s"), []string{":2:", "limits.api.rate", "1 to"}},
		{"negative rate", limit("-5/1s"), []string{":2:", "limits.api.rate", "1 to"}},
		{"overflowing rate", limit("99999999999999999999/1s"), []string{":2:", "limits.api.rate", "4294967295"}},
		{"negative interval", limit("5/-1s"), []string{":2:", "limits.api.rate", "1ms"}},
		{
			"permits above the rate",
			"limits:\n  api: { rate: 5/1s }\njobs:\n  \"http:request\": { limits: [api], permits: 6 }\n",
			[]string{":4:", "permits", "6", "5"},
		},
		{
			"negative concurrency",
			"pools:\n  - { name: default, concurrency: -1 }\n",
			[]string{":2:", "concurrency", "-1"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			config := write(t, "config.yaml", tt.config)
			want := append([]string{config}, tt.want...)
			checkError(t, runToEnd(t, "worker", "--config", config), 2, want...)
		})
	}
	t.Run("enqueue reads the same file", func(t *testing.T) {
		config := write(t, "config.yaml", "logs: {}\n")
		checkError(t, runToEnd(t, "enqueue", "--config", config, "--file", "jobs.ndjson"), 2, config+":1:1:", "logs")
	})
}

func TestUnreachableRedis(t *testing.T) {
	config := write(t, "config.yaml", `redis: { addrs: ["127.0.0.1:1"] }`)
	jobs := write(t, "jobs.ndjson", `{"type":"x"}`)
	checkError(t, runToEnd(t, "worker", "--config", config), 1, "127.0.0.1:1", "--embedded")
	checkError(t, runToEnd(t, "enqueue", "--config", config, "--file", jobs), 1, "127.0.0.1:1")
}

// TestJobLineMistakes: each bad line is named with its number and reason, the
// good one beside it is enqueued, and the exit status is 1.
func TestJobLineMistakes(t *testing.T) {
	s := newSite(t, oneLimit)
	good := `{"type":"http:request","payload":{"url":"` + s.url + `"}}`
	tests := []struct {
		name, line string
		want       []string
	}{
		{"not JSON", `{"type":`, []string{"not JSON"}},
		{"no type", `{"payload":{}}`, []string{"type", "missing"}},
		{"bad duration", `{"type":"x","timeout":"soon"}`, []string{"timeout", "soon", "30s"}},
		{"timeout below 1 s", `{"type":"x","timeout":"10ms"}`, []string{"timeout", "1s"}},
		{"negative retries", `{"type":"x","max_retry":-3}`, []string{"max_retry", "-3"}},
		{"5 MB long", `{"type":"x","payload":"` + strings.Repeat("x", 5<<20) + `"}`, []string{"bytes"}},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := write(t, "jobs.ndjson", good+"\n"+tt.line+"\n")
			got := runToEnd(t, "enqueue", "--config", s.config, "--file", file)
			if got.status != 1 {
				t.Errorf("status %d, want 1", got.status)
			}
			for _, want := range append(tt.want, "line 2") {
				if !strings.Contains(got.stderr, want) {
					t.Errorf("%q does not mention %q", got.stderr, want)
				}
			}
			if q := s.queue(); q.Pending != i+1 {
				t.Errorf("%d jobs pending, want %d: the good lines", q.Pending, i+1)
			}
		})
	}
}

func TestNothingToEnqueue(t *testing.T) {
	s := newSite(t, oneLimit)
	empty := write(t, "jobs.ndjson", "")
	got := runToEnd(t, "enqueue", "--config", s.config, "--file", empty)
	checkError(t, got, 1, empty)

	// A command whose standard input is closed reads from /dev/null, as here.
	got = runToEnd(t, "enqueue", "--config", s.config, "--file", "-")
	checkError(t, got, 1, "standard input")
}

// TestHostNotAllowed: the job waits, with the reason, until its host is allowed;
// the worker and the other jobs are unharmed.
func TestHostNotAllowed(t *testing.T) {
	s := newSite(t, oneLimit)
	file := write(t, "jobs.ndjson", fmt.Sprintf(`{"type":"http:request","id":"bad","max_retry":0,"payload":{"url":"http://169.254.169.254/"}}
{"type":"http:request","id":"good","payload":{"method":"GET","url":"%s/?job=good"}}
`, s.url))
	if got := runToEnd(t, "enqueue", "--config", s.config, "--file", file); got.status != 0 {
		t.Fatalf("enqueue: status %d\n%s", got.status, got.stderr)
	}
	w := s.startWorker()
	testkit.Eventually(t, 20*time.Second, "one job done and one waiting", func() bool {
		q := s.queue()
		return q.Completed == 1 && q.Retry == 1
	}, s.state)
	got := runToEnd(t, "throttle", "--config", s.config, "explain", "--task", "bad")
	for _, want := range []string{"waits", "host_not_allowed", "169.254.169.254", "http.allow_hosts"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("throttle explain does not mention %q:\n%s%s", want, got.stdout, got.stderr)
		}
	}
	s.stop(w)
	bad, err := s.inspector.GetTaskInfo("default", "bad")
	if err != nil {
		t.Fatal(err)
	}
	if bad.Retried != 0 || s.queue().Archived != 0 {
		t.Errorf("it has used up %d retries; %s", bad.Retried, s.state())
	}
}

// TestMistakeMendedByAnotherWorker: a worker starts with a misspelt key, and is replaced by one
// with the right key. All jobs run, the first time.
func TestMistakeMendedByAnotherWorker(t *testing.T) {
	const jobs = 60
	s := newSite(t, oneLimit)
	right, err := os.ReadFile(s.config)
	if err != nil {
		t.Fatal(err)
	}
	config := func(key string) string {
		return write(t, "config.yaml", strings.Replace(string(right), "api: {", "api: { key: "+key+",", 1))
	}
	s.enqueue(jobs)
	wrong := startWorker(t, config("payload.ulr"))
	testkit.Eventually(t, 20*time.Second, "all jobs tried", func() bool { return s.queue().Retry == jobs }, s.state)
	s.stop(wrong)
	w := startWorker(t, config("payload.method"))
	s.awaitDone(jobs, 40*time.Second)
	s.stop(w)
	s.checkOnceEach(jobs)
	if q := s.queue(); q.Archived != 0 || q.Failed != 0 {
		t.Errorf("%d jobs archived, %d failures", q.Archived, q.Failed)
	}
}

func TestSecondWorkerOnTheSameAdminPort(t *testing.T) {
	s := newSite(t, oneLimit)
	first := s.startWorker()
	got := runToEnd(t, "worker", "--config", s.config, "--admin-addr", first.admin)
	checkError(t, got, 1, first.admin, "in use", "--admin-addr")
	s.stop(first)
}
