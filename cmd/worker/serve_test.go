package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/cli"
)

// TestStart: a worker says at its start where its pages are, and which limits apply to what.
func TestStart(t *testing.T) {
	const jobs = "limits: { api: { rate: 10/1s } }\njobs: { \"email:*\": { limits: [api] } }\n"
	tests := []struct {
		name, config string
		readOnly     string
	}{
		{"without a token", jobs, "/ (read only: admin.token is not set), metrics"},
		{"with a token", jobs + "admin: { token: secret }\n", ""},
		{"with an unset token", jobs + "admin: { token: \"${NOT_SET}\" }\n", "/ (read only: admin.token is empty, because ${NOT_SET} is not set in the environment), metrics"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			stdout := &stopAt{text: "job email:*: api 10/1s", stop: cancel}
			var stderr bytes.Buffer
			args := []string{"--embedded", "--config", configFile(t, tt.config), "--admin-addr", "127.0.0.1:0"}
			if status := cli.Run(ctx, newCommand(), args, nil, stdout, &stderr); status != cli.Done {
				t.Errorf("status %d\n%s", status, &stderr)
			}
			for _, want := range []string{"dashboard on http://127.0.0.1:", "/metrics", "/healthz", "pool default: 20 slots", "job email:*: api 10/1s"} {
				if !strings.Contains(stdout.String(), want) {
					t.Errorf("no %q in:\n%s", want, stdout)
				}
			}
			if said := stdout.String(); !strings.Contains(said, tt.readOnly) || strings.Contains(said, "read only") != (tt.readOnly != "") {
				t.Errorf("no %q in:\n%s", tt.readOnly, said)
			}
			if strings.Contains(stdout.String(), "secret") {
				t.Errorf("the token is printed:\n%s", stdout)
			}
		})
	}
}

// TestEverythingIsJSON: with log.format json each line that a worker writes is JSON, also
// what it says at its start, what asynq logs, and why it ends.
func TestEverythingIsJSON(t *testing.T) {
	each := func(text string) {
		t.Helper()
		if text == "" {
			t.Error("nothing is written")
		}
		for line := range strings.Lines(text) {
			if !json.Valid([]byte(line)) {
				t.Errorf("no JSON: %s", line)
			}
		}
	}
	config := configFile(t, "limits: { api: { rate: 10/1s } }\njobs: { \"email:*\": { limits: [api] } }\nlog: { format: json, level: debug }\n")
	ctx, cancel := context.WithCancel(t.Context())
	var stdout bytes.Buffer
	stderr := &stopAt{text: "job email:*: api 10/1s", stop: cancel}
	if status := cli.Run(ctx, newCommand(), []string{"--embedded", "--config", config, "--admin-addr", "127.0.0.1:0"}, nil, &stdout, stderr); status != cli.Done {
		t.Errorf("status %d", status)
	}
	if stdout.Len() > 0 {
		t.Errorf("on standard output: %s", &stdout)
	}
	each(stderr.String())
	// Only one line has the address of the embedded Redis: it is there whatever is logged.
	quiet := configFile(t, "log: { format: json, level: error }\n")
	ctx, cancel = context.WithCancel(t.Context())
	told := &stopAt{text: "embedded Redis on 127.0.0.1:", stop: cancel}
	if status := cli.Run(ctx, newCommand(), []string{"--embedded", "--config", quiet}, nil, &stdout, told); status != cli.Done {
		t.Errorf("status %d", status)
	}
	each(told.String())
	if !strings.Contains(told.String(), "embedded Redis on 127.0.0.1:") {
		t.Errorf("it does not say where its Redis is: %s", told)
	}
	var why bytes.Buffer
	away := configFile(t, "redis: { addrs: [\"127.0.0.1:1\"] }\nlog: { format: json }\n")
	if status := cli.Run(t.Context(), newCommand(), []string{"--config", away}, nil, &stdout, &why); status != cli.Failed {
		t.Errorf("without Redis: status %d", status)
	}
	each(why.String())
	if !strings.Contains(why.String(), "127.0.0.1:1") {
		t.Errorf("it does not say why it ends: %s", &why)
	}
	t.Chdir(filepath.Dir(away))
	var unnamed bytes.Buffer
	if status := cli.Run(t.Context(), newCommand(), nil, nil, &stdout, &unnamed); status != cli.Failed {
		t.Errorf("with the file of the directory: status %d", status)
	}
	each(unnamed.String())
	if !strings.Contains(unnamed.String(), cli.UsingDefault) {
		t.Errorf("it does not say which file it reads: %s", &unnamed)
	}
}
