package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestAdmin(t *testing.T) {
	notReady := make(chan error, 1) // what the next /readyz finds out
	listener, err := listenAdmin("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := serveAdmin(listener, func(context.Context) error { return <-notReady })
	defer http.DefaultClient.CloseIdleConnections()
	defer func() {
		if err := a.close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}()
	tests := []struct {
		name   string
		ready  error
		path   string
		status int
		body   string
	}{
		{"alive", nil, "/healthz", http.StatusOK, "ok"},
		{"ready", nil, "/readyz", http.StatusOK, "ready"},
		{"alive but not ready", errors.New("redis is away"), "/healthz", http.StatusOK, "ok"},
		{"not ready", errors.New("redis is away"), "/readyz", http.StatusServiceUnavailable, "redis is away"},
		{"nothing else", nil, "/", http.StatusNotFound, "not found"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.path == "/readyz" {
				notReady <- tt.ready
			}
			resp, err := http.Get("http://" + listener.Addr().String() + tt.path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status || !strings.Contains(string(body), tt.body) {
				t.Errorf("%d %q, want %d %q", resp.StatusCode, body, tt.status, tt.body)
			}
		})
	}
}

func TestAdminAddressWrong(t *testing.T) {
	_, err := listenAdmin("not-an-address")
	if err == nil || !strings.Contains(err.Error(), "not-an-address") {
		t.Fatalf("got %v, want an error that names the address", err)
	}
}
