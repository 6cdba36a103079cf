package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// TestHealth: --health succeeds while a worker serves the admin address, by flag or
// by configuration, and fails as soon as it does not.
func TestHealth(t *testing.T) {
	addr := redistest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	path := configFile(t, "admin: { addr: \"0.0.0.0:"+port+"\" }\n") // all interfaces: what a container serves
	fails := func(when string) {
		t.Helper()
		got := runCommand(t.Context(), "--health", "--config", path)
		if got.status != cli.Failed || !strings.Contains(got.stderr, addr) {
			t.Errorf("%s: status %d, %q, want %d and the address", when, got.status, got.stderr, cli.Failed)
		}
	}
	fails("before it starts")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	serving, served := context.WithCancel(t.Context())
	stdout := &stopAt{text: "pool default", stop: served}
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(ctx, newCommand(), []string{"--embedded", "--config", path}, nil, stdout, new(testkit.Buffer))
	}()
	select {
	case <-serving.Done():
	case status := <-ended:
		t.Fatalf("the worker ended at once, with %d", status)
	}
	for _, args := range [][]string{{"--config", path}, {"--admin-addr", addr}, {"--admin-addr", ":" + port}} {
		got := runCommand(t.Context(), append([]string{"--health"}, args...)...)
		if got.status != cli.Done || got.stdout != "ok\n" || got.stderr != "" {
			t.Errorf("%v: status %d, %q, %q, want ok", args, got.status, got.stdout, got.stderr)
		}
	}
	stop()
	if status := <-ended; status != cli.Done {
		t.Errorf("the worker ended with %d", status)
	}
	fails("after its end")
}

// TestHealthOfStrangers: whatever else listens there is no healthy worker.
func TestHealthOfStrangers(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "gone\x1b[2J", http.StatusServiceUnavailable)
	}))
	defer server.Close()
	got := runCommand(t.Context(), "--health", "--admin-addr", server.Listener.Addr().String())
	if got.status != cli.Failed || !strings.Contains(got.stderr, "503") || strings.Contains(got.stderr, "\x1b") {
		t.Errorf("status %d, %q", got.status, got.stderr)
	}
}

func TestHealthMistakes(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"--config", configFile(t, "")}, "admin.addr"},
		{[]string{"--config", "missing.yaml"}, "missing.yaml"},
		{[]string{"--admin-addr", "9464"}, "HOST:PORT"},
		{[]string{"--admin-addr", "127.0.0.1:0"}, "name one"},
		{[]string{"--embedded"}, "--health"},
		{[]string{"--demo"}, "--health"},
		{[]string{"--json"}, "--demo"},
	} {
		got := runCommand(t.Context(), append([]string{"--health"}, tt.args...)...)
		if got.status != cli.Usage || !strings.Contains(got.stderr, tt.want) || strings.Count(got.stderr, "\n") != 1 {
			t.Errorf("%v: status %d, %q, want %d and %q in a line", tt.args, got.status, got.stderr, cli.Usage, tt.want)
		}
	}
}

func TestFromHere(t *testing.T) {
	for addr, want := range map[string]string{
		":9464": "127.0.0.1:9464", "0.0.0.0:9464": "127.0.0.1:9464", "[::]:9464": "[::1]:9464",
		"10.1.2.3:9464": "10.1.2.3:9464", "[fd00::1]:9464": "[fd00::1]:9464", "worker.internal:80": "worker.internal:80",
	} {
		if got, err := fromHere(addr); err != nil || got != want {
			t.Errorf("%s: %q, %v, want %q", addr, got, err, want)
		}
	}
}
