package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/strictapi"
)

func TestMain(m *testing.M) {
	strictapi.ServeIfAsked()
	goleak.VerifyTestMain(m)
}

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

// configFile returns the path of a file with these contents.
func configFile(t *testing.T, contents string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHelpAndVersion(t *testing.T) {
	for _, tt := range []struct {
		flag string
		want []string
	}{
		{"--help", []string{"--config", "--embedded", "--demo", "--json", "--admin-addr", "SIGTERM"}},
		{"--version", []string{"worker version "}},
	} {
		got := runCommand(t.Context(), tt.flag)
		if got.status != cli.Done || got.stderr != "" {
			t.Errorf("%s: status %d, stderr %q", tt.flag, got.status, got.stderr)
		}
		for _, want := range tt.want {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("%s does not mention %q:\n%s", tt.flag, want, got.stdout)
			}
		}
	}
}

// TestMistakes: each has one line on standard error that says what to do, and its exit status.
func TestMistakes(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing.yaml")
	tests := []struct {
		name   string
		args   []string
		status int
		want   []string
	}{
		{"unknown flag", []string{"--confg", "x"}, cli.Usage, []string{"--confg", "--help"}},
		{"an argument", []string{"config.yaml"}, cli.Usage, []string{`"config.yaml"`, "--help"}},
		{"json without demo", []string{"--json"}, cli.Usage, []string{"--json", "--demo"}},
		{"demo with a configuration", []string{"--demo", "--config", "x"}, cli.Usage, []string{"--demo"}},
		{"no configuration here", nil, cli.Usage, []string{"there is no config.yaml in this directory", "--config", "--demo"}},
		{"one hyphen", []string{"-demo"}, cli.Usage, []string{`did you mean "--demo"?`}},
		{"one hyphen, and the letter of another flag", []string{"-health"}, cli.Usage, []string{`did you mean "--health"?`}},
		{"no such file", []string{"--config", missing}, cli.Usage, []string{missing}},
		{
			"unknown key", []string{"--config", configFile(t, "redis: {}\nlimts: {}\n")},
			cli.Usage, []string{"config.yaml:2:1", "limts", "limits"},
		},
		{
			"bad rate", []string{"--config", configFile(t, "limits:\n  a: { rate: 100/ }\njobs:\n  x: { limits: [a] }\n")},
			cli.Usage, []string{"config.yaml:2:", "limits.a.rate", "100/1s"},
		},
		{
			"bad log level", []string{"--config", configFile(t, "log: { level: loud }\n")},
			cli.Usage, []string{"config.yaml:1:", "log.level", "loud"},
		},
		{
			"admin address without a port", []string{"--config", configFile(t, "redis: { addrs: [\"127.0.0.1:1\"] }\n"), "--admin-addr", "9464"},
			cli.Usage, []string{"--admin-addr", `"9464"`, "HOST:PORT"},
		},
		{
			"unreachable redis", []string{"--config", configFile(t, "redis: { addrs: [\"127.0.0.1:1\"] }\n")},
			cli.Failed, []string{"127.0.0.1:1", "redis.addrs", "--embedded"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := runCommand(t.Context(), tt.args...)
			if got.status != tt.status {
				t.Errorf("status %d, want %d", got.status, tt.status)
			}
			if lines := strings.Count(got.stderr, "\n"); lines != 1 {
				t.Errorf("%d lines on standard error, want 1:\n%s", lines, got.stderr)
			}
			for _, want := range tt.want {
				if !strings.Contains(got.stderr, want) {
					t.Errorf("%q does not mention %q", got.stderr, want)
				}
			}
		})
	}
}

func TestAdminAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := taken.Addr().String()
	got := runCommand(t.Context(), "--embedded", "--config", configFile(t, ""), "--admin-addr", addr)
	if got.status != cli.Failed {
		t.Errorf("status %d, want %d", got.status, cli.Failed)
	}
	for _, want := range []string{addr, "in use", "--admin-addr"} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("%q does not mention %q", got.stderr, want)
		}
	}
	if strings.Count(got.stderr, "\n") != 1 {
		t.Errorf("want one line on standard error:\n%s", got.stderr)
	}
}
