package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
	"github.com/jobthrottle/jobthrottle/worker"
)

// hostile is text that makes a line of its own if it is logged unescaped, and that clears
// terminals and reverses their text.
const hostile = "a\n2026-01-01T00:00:00.000Z\tinfo\tFORGED\t{}\r\x1b[2J\u009b2J\u202e\u2028{\"level\":\"FORGED\"}\n"

// acts reports whether any character of a line has an effect, except the console's own tabs.
func acts(line string) bool {
	return strings.ContainsFunc(strings.ReplaceAll(line, "\t", ""), func(r rune) bool {
		return unicode.IsControl(r) || r == 0x2028 || r == 0x202e
	})
}

// TestLogLinesOfStrangers: ids, types and payloads make no lines in the log, nor
// do they act on a terminal, in what jobthrottle logs as well as in what asynq does.
func TestLogLinesOfStrangers(t *testing.T) {
	for _, format := range []string{"console", "json"} {
		t.Run(format, func(t *testing.T) {
			addr := redistest.Start(t)
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			defer rdb.Close()
			client := asynq.NewClientFromRedisClient(rdb)
			add := func(id, typ, payload string, headers map[string]string, opts ...asynq.Option) {
				t.Helper()
				opts = append(opts, asynq.TaskID(id))
				if _, err := client.Enqueue(asynq.NewTaskWithHeaders(typ, []byte(payload), headers), opts...); err != nil {
					t.Fatal(err)
				}
			}
			field, err := json.Marshal(map[string]any{hostile: 1, "url": "http://x"})
			if err != nil {
				t.Fatal(err)
			}
			url, err := json.Marshal(map[string]any{"url": "http://127.0.0.1:1/", "method": hostile})
			if err != nil {
				t.Fatal(err)
			}
			add("field"+hostile, worker.HTTPTaskType, string(field), nil)
			add("method"+hostile, worker.HTTPTaskType, string(url), nil)
			add("type"+hostile, "type"+hostile, "", nil)
			add("header"+hostile, worker.HTTPTaskType+hostile, "", map[string]string{"jobthrottle-max-retry": "0"}, asynq.MaxRetry(0))

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stderr := &testkit.Buffer{}
			config := configFile(t, fmt.Sprintf("redis: { addrs: [%q] }\nlog: { level: debug, format: %s }\n", addr, format))
			done := make(chan int, 1)
			go func() {
				done <- cli.Run(ctx, newCommand(), []string{"--config", config}, nil, &testkit.Buffer{}, stderr)
			}()
			inspector := asynq.NewInspectorFromRedisClient(rdb)
			testkit.Eventually(t, 15*time.Second, "the jobs have ended, and are logged", func() bool {
				q, err := inspector.GetQueueInfo("default")
				return err == nil && q.Archived+q.Retry >= 3 && q.Pending+q.Active == 0 && strings.Count(stderr.String(), "task_id") >= 3
			}, stderr.String)
			cancel()
			if status := <-done; status != cli.Done {
				t.Errorf("status %d", status)
			}
			begin := regexp.MustCompile(`^(\d{4}-\d\d-\d\dT[^\t]*\t(debug|info|warn|error)\t)`)
			for _, line := range strings.Split(strings.TrimSuffix(stderr.String(), "\n"), "\n") {
				var entry map[string]any
				if format == "json" && (json.Unmarshal([]byte(line), &entry) != nil || entry["level"] == "FORGED") || format == "console" && !begin.MatchString(line) {
					t.Errorf("not a line of the log: %q", line)
				}
				if strings.HasPrefix(line, "2026-01-01T00:00:00.000Z\t") || acts(line) {
					t.Errorf("acts: %q", line)
				}
			}
		})
	}
}
