package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/cli"
)

// checked runs check on lines with a configuration of the site's Redis.
func (s *site) checked(yaml string, lines []string, more ...string) outcome {
	s.Helper()
	file := filepath.Join(s.TempDir(), "jobs.ndjson")
	s.check(os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	config := configFile(s.TB.(*testing.T), fmt.Sprintf("redis: { addrs: [%q] }\n%s", s.addr, yaml))
	return runCommand(s.Context(), append([]string{"check", file, "--config", config}, more...)...)
}

const checkYAML = `
limits: { api: { rate: 10/1s }, account: { rate: 5/1s, key: payload.account } }
pools: [ { name: default, concurrency: 4, queues: { default: 1, critical: 2 } } ]
jobs: { "http:request": { limits: [api] }, "bill:": { limits: [api, account], permits: { api: payload.tokens } } }
http: { allow_hosts: ["api.example.com", "10.0.0.5"] }
`

// TestCheck: each line that would not run is named with its number, its reason and
// what to mend, and no other.
func TestCheck(t *testing.T) {
	s := newSite(t)
	for _, tt := range []struct {
		line string
		want string // part of what it says; empty: it would run
	}{
		{`{"type":"http:request","payload":{"url":"https://api.example.com/v1"}}`, ""},
		{`{"type":"http:request","queue":"critical","payload":{"url":"http://10.0.0.5/v1","method":"POST","body":"x"}}`, ""},
		{`{"type":"bill:month","payload":{"account":"acme","tokens":10}}`, ""},
		{`{"type":"bill:month","payload":{"account":17,"tokens":1}}`, ""},
		{`{"type":"report:month"}`, ""}, // some worker may have a handler
		{`{"type":"bil:"}`, ""},         // the same: it may mean what it says
		{`{"typ":"http:request"}`, `bad_line: typ: `},
		{`{"type":"http:request","payload":`, "bad_line: "},
		{`nonsense`, "bad_line: "},
		{`{"type":"http:request","queue":"critcal","payload":{"url":"https://api.example.com/v1"}}`, `no_queue: no pool of the configuration serves queue "critcal": did you mean "critical"?`},
		{`{"type":"http:requst","payload":{}}`, `no_handler: the configuration has no job "http:requst": did you mean "http:request"?`},
		{`{"type":"http:request","payload":{"url":"https://api.exmaple.com/v1"}}`, `host_not_allowed: host "api.exmaple.com" is not allowed: http.allow_hosts does not list it: did you mean "api.example.com"?`},
		{`{"type":"http:request","payload":{"url":"http://10.0.0.6/"}}`, `host_not_allowed: `},
		{`{"type":"http:request","payload":{"url":"http://169.254.169.254/"}}`, `host_not_allowed: `},
		{`{"type":"http:request","payload":{"url":"ftp://api.example.com/"}}`, `bad_request: `},
		{`{"type":"http:request","payload":{"ulr":"https://api.example.com/"}}`, `bad_request: invalid payload: ulr: unknown field`},
		{`{"type":"http:request","payload":{"url":"https://api.example.com/","headers":{"Host":"x"}}}`, `bad_request: invalid payload: headers: Host is not for a job to set`},
		{`{"type":"http:request"}`, `bad_request: invalid payload: want a JSON object`},
		{`{"type":"bill:month","payload":{"acount":"acme","tokens":1}}`, `bad_key: limit "account": `},
		{`{"type":"bill:month","payload":{"account":"acme"}}`, `bad_cost: `},
		{`{"type":"bill:month","payload":{"account":"acme","tokens":-3}}`, `bad_cost: `},
		{`{"type":"bill:month","payload":{"account":"acme","tokens":11}}`, `cost_above_limit: it costs 11 permits of limit "api", which gives 10 at once`},
	} {
		got := s.checked(checkYAML, []string{"", tt.line})
		switch {
		case tt.want == "" && (got.status != cli.Done || got.stdout != "1 job checked: nothing keeps them from running\n"):
			t.Errorf("%s: %+v, want no problem", tt.line, got)
		case tt.want != "" && (got.status != cli.Failed || !strings.HasPrefix(got.stdout, "line 2: "+tt.want) || strings.Count(got.stdout, "\n") != 1 ||
			!strings.Contains(got.stderr, "1 of 1 job would not run")):
			t.Errorf("%s: %+v, want %q", tt.line, got, tt.want)
		}
	}
}

// TestCheckAsksRedis: a limit is as an operator has set it. Without Redis the configuration
// says what it would be, and the command says so.
func TestCheckAsksRedis(t *testing.T) {
	server := newServer(t)
	s := server.site
	lines := []string{`{"type":"bill:month","payload":{"account":"acme","tokens":11}}`, `{"type":"bill:month","id":"a","payload":{"account":"acme","tokens":8}}`,
		`{"type":"bill:month","id":"a","payload":{"account":"acme","tokens":8}}`}
	if got := s.checked(checkYAML, lines); got.status != cli.Failed || !strings.Contains(got.stdout, "line 1: cost_above_limit") ||
		!strings.Contains(got.stdout, `line 3: same_id: line 2 has the id "a"`) || strings.Contains(got.stdout, "line 2: ") {
		t.Errorf("%+v", got)
	}
	s.limiter("api", perHour(7), 0)
	if got := s.checked(checkYAML, lines[:2], "--json"); strings.Count(got.stdout, "cost_above_limit") != 2 || strings.Count(got.stdout, "\n") != 2 {
		t.Errorf("%+v", got)
	}
	s.limiter("api", perHour(11), 0)
	if got := s.checked(checkYAML, lines[:2]); got.status != cli.Done {
		t.Errorf("%+v", got)
	}
	server.Stop()
	if got := s.checked(checkYAML, lines[:2]); got.status != cli.Failed || !strings.Contains(got.stdout, "line 1: cost_above_limit") || !strings.Contains(got.stderr, "by the configuration alone") {
		t.Errorf("without Redis: %+v", got)
	}
}

// TestCheckAsksWorkers: workers that run say which handlers they have.
func TestCheckAsksWorkers(t *testing.T) {
	s := newSite(t)
	w := s.workers("jobs: { \"x:\": {}, \"y:\": {} }\n")
	w.start(nil)
	config := "jobs: { \"x:\": {}, \"y:\": {} }\n"
	lines := []string{`{"type":"x:one"}`, `{"type":"y:two"}`, `{"type":"http:requests"}`} // the built-in job is for its own type only
	var got outcome
	w.await("the worker says what it has", func() bool {
		got = s.checked(config, lines)
		return strings.Contains(got.stdout, "line 2: no_handler")
	})
	if got.status != cli.Failed || got.stdout != "line 2: no_handler: none of the 1 workers that run and serve queue \"default\" has a handler for type \"y:two\"\n"+
		"line 3: no_handler: none of the 1 workers that run and serve queue \"default\" has a handler for type \"http:requests\": did you mean \"http:request\"?\n" {
		t.Errorf("%+v", got)
	}
}

// TestCheckAsksServers: a queue that no server serves now is told, and a server that is not among the workers may have a
// handler for anything.
func TestCheckAsksServers(t *testing.T) {
	s := newSite(t)
	w := s.workers("pools: [ { name: default, concurrency: 2, queues: { default: 1 } } ]\njobs: { \"x:\": {}, \"y:\": {} }\n")
	w.start(nil)
	config := "pools: [ { name: default, concurrency: 2, queues: { default: 1, reports: 1 } } ]\njobs: { \"x:\": {}, \"y:\": {} }\n"
	lines := []string{`{"type":"x:one"}`, `{"type":"y:two"}`, `{"type":"x:one","queue":"reports"}`, `{"type":"x:one","queue":"others"}`}
	var got outcome
	said := func(want ...string) {
		t.Helper()
		w.await(fmt.Sprintf("it says %q", want), func() bool {
			got = s.checked(config, lines)
			var all []string
			for line := range strings.Lines(got.stdout) {
				reason, _, _ := strings.Cut(strings.TrimPrefix(line, "line "), ": n")
				_, rest, _ := strings.Cut(line, ": ")
				word, _, _ := strings.Cut(rest, ":")
				all = append(all, reason+" "+word)
			}
			return slices.Equal(all, want)
		})
	}
	said("2 no_handler", "4 no_queue")
	w.await("it tells of reports", func() bool {
		return strings.Contains(s.checked(config, lines).stderr, `queue "reports" (1 job): no worker that runs now serves it`)
	})
	for _, queue := range []string{"default", "others"} {
		srv := asynq.NewServerFromRedisClient(s.rdb, asynq.Config{Queues: map[string]int{queue: 1}, LogLevel: asynq.FatalLevel})
		s.check(srv.Start(asynq.NewServeMux()))
		t.Cleanup(srv.Shutdown)
	}
	w.await("nothing keeps them", func() bool {
		got = s.checked(config, lines)
		return got.status == cli.Done
	})
}

// TestCheckManyAlike: if all lines have the same problem, it is not printed for all of them.
func TestCheckManyAlike(t *testing.T) {
	s := newSite(t)
	var lines []string
	for i := range 500 {
		lines = append(lines, fmt.Sprintf(`{"type":"http:request","id":"%d","payload":{"url":"https://elsewhere.example/"}}`, i))
	}
	got := s.checked(checkYAML, lines)
	if n := strings.Count(got.stdout, "\n"); n != shownAlike || !strings.Contains(got.stderr, "and 480 more lines with host_not_allowed http:request") || !strings.Contains(got.stderr, "500 of 500 jobs") {
		t.Errorf("%d lines; %s", n, got.stderr)
	}
	if got := s.checked(checkYAML, lines, "--json"); strings.Count(got.stdout, "\n") != 500 {
		t.Errorf("as JSON: %d lines", strings.Count(got.stdout, "\n"))
	}
}

// TestCheckStandardInput: "-" reads it, also from a file that the shell has opened, and Ctrl-C ends
// the wait for it.
func TestCheckStandardInput(t *testing.T) {
	s := newSite(t)
	config := configFile(t, fmt.Sprintf("redis: { addrs: [%q] }\n%s", s.addr, checkYAML))
	run := func(ctx context.Context, in io.Reader) outcome {
		var stdout, stderr bytes.Buffer
		status := cli.Run(ctx, newCommand(), []string{"check", "-", "--config", config}, in, &stdout, &stderr)
		return outcome{status, stdout.String(), stderr.String()}
	}
	if got := run(t.Context(), strings.NewReader(`{"type":"http:request","payload":{"url":"https://other.example/"}}`)); got.status != cli.Failed || !strings.HasPrefix(got.stdout, "line 1: host_not_allowed") {
		t.Errorf("%+v", got)
	}
	expectFailure(t, run(t.Context(), strings.NewReader("\n\n")), cli.Failed, []string{"standard input has no job lines"})
	redirected := func(name string) outcome {
		file, err := os.Open(name)
		s.check(err)
		defer file.Close()
		return run(t.Context(), file)
	}
	jobs := filepath.Join(t.TempDir(), "jobs.ndjson")
	s.check(os.WriteFile(jobs, []byte("{\"type\":\"report:month\"}\n"), 0o600))
	if got := redirected(jobs); got.status != cli.Done || !strings.HasPrefix(got.stdout, "1 job checked") {
		t.Errorf("a file: %+v", got)
	}
	expectFailure(t, redirected(os.DevNull), cli.Failed, []string{"standard input has no job lines"})
	expectFailure(t, runCommand(t.Context(), "check", "missing.ndjson", "--config", config), cli.Failed, []string{"missing.ndjson"})
	expectFailure(t, runCommand(t.Context(), "check", "--config", config), cli.Usage, []string{"FILE", "check --help"})
	r, w, err := os.Pipe()
	s.check(err)
	defer w.Close()
	defer r.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan outcome)
	go func() { ended <- run(ctx, r) }()
	if _, err := io.WriteString(w, "{\"type\":\"x\"}\n"); err != nil {
		t.Fatal(err)
	}
	cancel()
	if got := <-ended; got.status != cli.Failed || !strings.Contains(got.stderr, "interrupted") {
		t.Errorf("%+v", got)
	}
}

// TestCheckTellsUnusedLimits: a limit that no job uses is a warning, with its position.
func TestCheckTellsUnusedLimits(t *testing.T) {
	s := newSite(t)
	got := s.checked("limits:\n  unused: { rate: 1/1s }\n", []string{`{"type":"report:month"}`})
	if got.status != 0 || !strings.Contains(got.stderr, ":3:3: limits.unused: no job uses this limit") {
		t.Errorf("status %d, want 0\n%s%s", got.status, got.stdout, got.stderr)
	}
}
