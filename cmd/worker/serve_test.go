package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/cli"
)

// TestStart: a worker says at its start where to look at it, and which limits apply to what.
func TestStart(t *testing.T) {
	const jobs = "limits: { api: { rate: 10/1s } }\njobs: { \"email:*\": { limits: [api] } }\n"
	tests := []struct {
		name, config string
		readOnly     bool
	}{
		{"without a token", jobs, true},
		{"with a token", jobs + "admin: { token: secret }\n", false},
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
			if got := strings.Contains(stdout.String(), "read only"); got != tt.readOnly {
				t.Errorf("read only: %t, want %t:\n%s", got, tt.readOnly, stdout)
			}
			if strings.Contains(stdout.String(), "secret") {
				t.Errorf("the token is printed:\n%s", stdout)
			}
		})
	}
}
