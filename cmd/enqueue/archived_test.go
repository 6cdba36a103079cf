package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestArchivedIDs: somebody who enqueues again what failed for good is told that it will not
// run, and can replace it.
func TestArchivedIDs(t *testing.T) {
	addr := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	lines := func(ids ...string) string {
		var b strings.Builder
		for _, id := range ids {
			unique := ""
			if id == "unique" {
				unique = `,"unique_for":"1h"`
			}
			fmt.Fprintf(&b, `{"type":"t","id":%q,"max_retry":0,"payload":{"n":%q}%s}`+"\n", id, id, unique)
		}
		return b.String()
	}
	run := func(input string, args ...string) ran {
		t.Helper()
		return enqueueWith(t, strings.NewReader(input), append([]string{"--redis", addr, "--file", "-"}, args...)...)
	}
	all := []string{"a", "b", "unique", "c"}
	run(lines(all...)).done(t, "enqueued 4,")
	for _, id := range []string{"a", "unique", "c"} {
		if err := inspector.ArchiveTask("default", id); err != nil {
			t.Fatal(err)
		}
	}
	got := run(lines(append(all, "new")...))
	got.want(t, cli.Failed, "line 1: ", `"a"`, "line 3: ", "line 4: ", "archived", "--replace")
	if !strings.Contains(got.stdout, "enqueued 1, already there 1, archived 3, bad 0") {
		t.Error(got.stdout)
	}
	got = run(lines(all...)+"nonsense\n", "--json")
	var counted counts
	if err := json.Unmarshal([]byte(got.stdout), &counted); err != nil || counted.Archived != 3 || counted.AlreadyThere != 1 || counted.Bad != 1 || counted.Enqueued != 0 {
		t.Errorf("%v: %s", err, got.stdout)
	}
	got.want(t, cli.Failed, "3 jobs", "1 bad line")

	run(lines(all...), "--replace").done(t, "enqueued 3, already there 1, bad 0")
	if info, err := inspector.GetQueueInfo("default"); err != nil || info.Archived != 0 || info.Pending != 5 {
		t.Fatalf("%+v, %v", info, err)
	}
	run(lines(all...), "--replace").done(t, "enqueued 0, already there 4")

	// They run, each once.
	runs := make(chan string, 10)
	server := asynq.NewServerFromRedisClient(rdb, asynq.Config{LogLevel: asynq.FatalLevel})
	if err := server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		runs <- string(task.Payload())
		return errors.Join(errors.New("again"), asynq.SkipRetry)
	})); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for range 5 {
		select {
		case payload := <-runs:
			seen[payload]++
		case <-time.After(20 * time.Second):
			t.Fatalf("ran %v", seen)
		}
	}
	server.Shutdown()
	if len(seen) != 5 {
		t.Errorf("ran %v", seen)
	}
	// If there are many, some are named, and all are counted.
	var many []string
	for i := range 600 {
		many = append(many, fmt.Sprint("many-", i))
	}
	run(lines(many...)).done(t, "enqueued 600")
	for _, id := range many {
		if err := inspector.ArchiveTask("default", id); err != nil {
			t.Fatal(err)
		}
	}
	got = run(lines(many...))
	got.want(t, cli.Failed, "600 jobs")
	if n := strings.Count(got.stderr, "\n"); n > shownArchived+2 {
		t.Errorf("%d lines on standard error", n)
	}
	run(lines(many...), "--replace").done(t, "enqueued 600, already there 0, bad 0")
}

// TestLockOfAnArchivedJob: a line that never runs because a job that failed for good has its
// unique lock is counted as archived, and the job is named.
func TestLockOfAnArchivedJob(t *testing.T) {
	addr := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	const (
		old  = `{"type":"x","id":"old-1","payload":{"n":1},"unique_for":"24h"}`
		same = `{"type":"x","payload":{"n":1},"unique_for":"24h"}`
		next = `{"type":"x","id":"new-1","payload":{"n":1},"unique_for":"24h"}`
	)
	run := func(input string, args ...string) ran {
		t.Helper()
		return enqueueWith(t, strings.NewReader(input), append([]string{"--redis", addr, "--file", "-"}, args...)...)
	}
	run(old).done(t, "enqueued 1,")
	run(same+"\n"+next).done(t, "enqueued 0, already there 2, bad 0")
	if err := asynq.NewInspectorFromRedisClient(rdb).ArchiveTask("default", "old-1"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{nil, {"--replace"}} {
		got := run(same+"\n"+next, args...)
		got.want(t, cli.Failed, "line 1: ", "line 2: ", `"old-1"`, "unique_for", "throttle retry")
		if !strings.Contains(got.stdout, "enqueued 0, already there 0, archived 2, bad 0") {
			t.Error(got.stdout)
		}
	}
	run(old, "--replace").done(t, "enqueued 1,")
}

// TestReplaceMended: archived jobs whose lines were mended are replaced, although their unique
// locks have changed. A job whose lock another job has stays.
func TestReplaceMended(t *testing.T) {
	addr := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	lines := func(version int) string {
		var b strings.Builder
		for i := range 3 {
			fmt.Fprintf(&b, `{"type":"x","id":"b%d","payload":{"n":%d,"v":%d},"unique_for":"24h"}`+"\n", i, i, version)
		}
		return b.String()
	}
	run := func(input string, args ...string) ran {
		t.Helper()
		return enqueueWith(t, strings.NewReader(input), append([]string{"--redis", addr, "--file", "-"}, args...)...)
	}
	archive := func() {
		t.Helper()
		for i := range 3 {
			if err := inspector.ArchiveTask("default", fmt.Sprint("b", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(lines(1)).done(t, "enqueued 3,")
	archive()
	run(lines(2)).want(t, cli.Failed, "3 jobs", "--replace") // and leaves nothing behind
	run(lines(2), "--replace").done(t, "enqueued 3, already there 0, bad 0")
	if info, err := inspector.GetQueueInfo("default"); err != nil || info.Archived != 0 || info.Pending != 3 {
		t.Fatalf("%+v, %v", info, err)
	}
	archive()
	run(`{"type":"x","id":"other","payload":{"n":1,"v":3},"unique_for":"24h"}`).done(t, "enqueued 1,")
	got := run(lines(3), "--replace")
	got.want(t, cli.Failed, "line 2: ", `"b1"`, "unique_for")
	if !strings.Contains(got.stdout, "enqueued 2, already there 0, archived 1, bad 0") || strings.Contains(got.stderr, "--replace") {
		t.Errorf("%+v", got)
	}
	if info, err := inspector.GetQueueInfo("default"); err != nil || info.Archived != 1 || info.Pending != 3 {
		t.Fatalf("%+v, %v", info, err)
	}
}

// done checks that the run succeeded and printed that.
func (r ran) done(t *testing.T, says string) {
	t.Helper()
	r.want(t, cli.Done)
	if !strings.Contains(r.stdout, says) {
		t.Errorf("it printed %q, want %q", r.stdout, says)
	}
}
