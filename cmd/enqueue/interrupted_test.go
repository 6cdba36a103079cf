package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// awaitPending waits until a job is pending.
func awaitPending(t *testing.T, addr string) {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	const list = "asynq:{default}:pending"
	if err := rdb.BLMove(t.Context(), list, list, "LEFT", "LEFT", 0).Err(); err != nil {
		t.Fatal(err)
	}
}

// TestInterrupted ends the command while it waits for its standard input, as Ctrl-C does.
func TestInterrupted(t *testing.T) {
	addr := redistest.Start(t)
	stdin, lines := io.Pipe()
	defer lines.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr bytes.Buffer
	status := make(chan int)
	go func() {
		status <- cli.Run(ctx, newCommand(), []string{"--redis", addr, "--file", "-"}, stdin, &stdout, &stderr)
	}()
	text, _ := jobLines(1)
	if _, err := io.WriteString(lines, text); err != nil {
		t.Fatal(err)
	}
	// The job arrives before its input ends: nothing waits for a batch to fill.
	awaitPending(t, addr)
	cancel()
	got := ran{<-status, stdout.String(), stderr.String()}
	got.want(t, cli.Failed, "interrupted after line 1, the last that is certain")
	if !strings.HasPrefix(got.stdout, "enqueued 1,") {
		t.Errorf("closing line %q", got.stdout)
	}
}

// TestInterruptedCount: jobs that are made have no lines and no ids. A user who runs the command again should know.
func TestInterruptedCount(t *testing.T) {
	addr := redistest.Start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout, stderr bytes.Buffer
	status := make(chan int)
	go func() {
		status <- cli.Run(ctx, newCommand(), []string{"--redis", addr, "--type", "x", "--count", "10000000"}, nil, &stdout, &stderr)
	}()
	awaitPending(t, addr)
	cancel()
	got := ran{<-status, stdout.String(), stderr.String()}
	got.want(t, cli.Failed, "the last that is certain: these have no ids, so running it again adds all of them again")
	if !strings.HasPrefix(got.stderr, "enqueue: interrupted after job ") {
		t.Errorf("the error %q", got.stderr)
	}
}
