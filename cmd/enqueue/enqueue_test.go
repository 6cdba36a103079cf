package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ran is what a run of the command left behind.
type ran struct {
	status         int
	stdout, stderr string
}

func enqueueWith(t *testing.T, stdin io.Reader, args ...string) ran {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := cli.Run(t.Context(), newCommand(), args, stdin, &stdout, &stderr)
	return ran{status, stdout.String(), stderr.String()}
}

// want checks the exit status and that standard error says each of the texts.
func (r ran) want(t *testing.T, status int, says ...string) {
	t.Helper()
	if r.status != status {
		t.Errorf("exit status %d, want %d; standard error:\n%s", r.status, status, r.stderr)
	}
	for _, text := range says {
		if !strings.Contains(r.stderr, text) {
			t.Errorf("standard error does not say %q:\n%s", text, r.stderr)
		}
	}
}

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "jobs.ndjson")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestStrictLeavesNoFile: what --strict copies has no name that could stay if the process is killed.
func TestStrictLeavesNoFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file keeps its name there")
	}
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	lines, reads := strings.NewReader(`{"type":"a"}`+"\n"), 0
	stdin := readerFunc(func(p []byte) (int, error) {
		reads++
		if files, err := os.ReadDir(dir); reads > 1 && (err != nil || len(files) > 0) { // the first read may come before that
			t.Errorf("%v, %v", files, err)
		}
		return lines.Read(p)
	})
	enqueueWith(t, stdin, "--redis", redistest.Start(t), "--strict", "--file", "-").want(t, cli.Done)
	if reads < 2 {
		t.Errorf("read %d times", reads)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// pending returns the ids of a queue's pending tasks, next first.
func pending(t *testing.T, addr, queue string) []string {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	tasks, err := inspector.ListPendingTasks(queue, asynq.PageSize(1000))
	if err != nil && !strings.Contains(err.Error(), "not found") {
		t.Fatal(err)
	}
	ids := make([]string, len(tasks))
	for i, task := range tasks {
		ids[i] = task.ID
	}
	return ids
}

func jobLines(n int) (text string, ids []string) {
	var b strings.Builder
	for i := range n {
		ids = append(ids, fmt.Sprintf("job-%03d", i))
		fmt.Fprintf(&b, `{"type":"http:request","payload":{"n":%d},"id":%q}`+"\n", i, ids[i])
	}
	return b.String(), ids
}

func TestFileTwiceDoublesNothing(t *testing.T) {
	addr := redistest.Start(t)
	text, ids := jobLines(400)
	file := write(t, text)
	first := enqueueWith(t, nil, "--redis", addr, "--file", file)
	first.want(t, cli.Done)
	if !strings.HasPrefix(first.stdout, "enqueued 400, already there 0, bad 0 in ") {
		t.Errorf("closing line %q", first.stdout)
	}
	second := enqueueWith(t, nil, "--redis", addr, "--file", file, "--json")
	second.want(t, cli.Done)
	var got counts
	if err := json.Unmarshal([]byte(second.stdout), &got); err != nil {
		t.Fatalf("%q: %v", second.stdout, err)
	}
	if got.Enqueued != 0 || got.AlreadyThere != 400 || got.Bad != 0 || got.LinesPerSecond <= 0 {
		t.Errorf("second run: %+v", got)
	}
	if got := pending(t, addr, "default"); fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("the queue is not the file, in its order:\n%v", got)
	}
}

func TestBadLinesAreReportedAndTheRestGoesOn(t *testing.T) {
	addr := redistest.Start(t)
	text := strings.Join([]string{
		`{"type":"a","id":"one"}`,
		`hello`,
		`{"payload":{}}`,
		``,
		`{"type":"a","timeout":"soon"}`,
		`{"type":"a","timeout":"200ms"}`,
		`{"type":"a","payload":"` + strings.Repeat("x", 5<<20) + `"}`,
		`{"type":"a","retires":3}`,
		`{"type":"a","id":"two"}`,
	}, "\n")
	got := enqueueWith(t, strings.NewReader(text), "--redis", addr, "--file", "-")
	got.want(t, cli.Failed,
		"line 2: is not JSON", "line 3: type: is missing", "line 5: timeout: \"soon\" is not a duration",
		"line 6: timeout: 200ms is below 1s", "line 7: is 5242906 bytes long", "line 8: retires: is not a key",
		"6 bad lines")
	if n := strings.Count(got.stderr, "\n"); n != 7 {
		t.Errorf("%d lines on standard error, want one for each bad line and a last one:\n%s", n, got.stderr)
	}
	if !strings.HasPrefix(got.stdout, "enqueued 2, already there 0, bad 6 in ") {
		t.Errorf("closing line %q", got.stdout)
	}
	if ids := pending(t, addr, "default"); fmt.Sprint(ids) != "[one two]" {
		t.Errorf("enqueued %v", ids)
	}
}

func TestStrictEnqueuesAllOrNothing(t *testing.T) {
	addr := redistest.Start(t)
	good, ids := jobLines(3)
	for _, from := range []string{"file", "standard input"} {
		t.Run(from, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			strict := func(text string) ran {
				if from == "file" {
					return enqueueWith(t, nil, "--redis", addr, "--strict", "--file", write(t, text))
				}
				return enqueueWith(t, strings.NewReader(text), "--redis", addr, "--strict", "--file", "-")
			}
			bad := strict(strings.ReplaceAll(good, "job-", from+"-") + "{}\n")
			bad.want(t, cli.Failed, "line 4: type: is missing", "nothing enqueued: 1 of 4 lines of")
			if got := pending(t, addr, "default"); strings.Contains(fmt.Sprint(got), from) {
				t.Errorf("a bad file enqueued %v", got)
			}
			strict(good).want(t, cli.Done)
			if got := pending(t, addr, "default"); fmt.Sprint(got) != fmt.Sprint(ids) {
				t.Errorf("enqueued %v, want %v", got, ids)
			}
			if left, err := filepath.Glob(filepath.Join(os.TempDir(), "enqueue-*")); err != nil || len(left) > 0 {
				t.Errorf("temporary files left: %v, %v", left, err)
			}
		})
	}
}

// TestStrictBeginsWhereItsInputDid: a program before it may have read a part of the file that is
// its standard input, such as a first line of names.
func TestStrictBeginsWhereItsInputDid(t *testing.T) {
	addr := redistest.Start(t)
	text, ids := jobLines(3)
	const head = "a head that is no job\n"
	file, err := os.Open(write(t, head+text))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for range 2 {
		if _, err := file.Seek(int64(len(head)), io.SeekStart); err != nil {
			t.Fatal(err)
		}
		enqueueWith(t, file, "--redis", addr, "--file", "-", "--strict").want(t, cli.Done)
	}
	if got := pending(t, addr, "default"); fmt.Sprint(got) != fmt.Sprint(ids) {
		t.Errorf("enqueued %v, want %v", got, ids)
	}
}

func TestMadeJobs(t *testing.T) {
	addr := redistest.Start(t)
	enqueueWith(t, nil, "--redis", addr, "--type", "email:send", "--payload", `{"to":"a"}`, "--count", "300", "--queue", "low").
		want(t, cli.Done)
	if got := pending(t, addr, "low"); len(got) != 300 {
		t.Errorf("%d jobs, want 300", len(got))
	}
}

func TestConfigNamesRedis(t *testing.T) {
	addr := redistest.Start(t)
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "redis: { addrs: [%q] }\n", addr), 0o600); err != nil {
		t.Fatal(err)
	}
	enqueueWith(t, nil, "--config", config, "--type", "a").want(t, cli.Done)
	t.Chdir(filepath.Dir(config))
	enqueueWith(t, nil, "--type", "a").want(t, cli.Done)
	if got := pending(t, addr, "default"); len(got) != 2 {
		t.Errorf("%d jobs, want 2", len(got))
	}
}

func TestMistakesOfTheUser(t *testing.T) {
	t.Chdir(t.TempDir()) // no config.yaml here
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("redis:\n  adrs: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   []string
		status int
		says   string
	}{
		{nil, cli.Usage, "give either --file or --type"},
		{[]string{"--file", "x", "--type", "a"}, cli.Usage, "give either --file or --type"},
		{[]string{"--file", ""}, cli.Usage, "--file is empty"},
		{[]string{"--file", "x", "--count", "2"}, cli.Usage, "go with --type"},
		{[]string{"--type", "a", "--strict"}, cli.Usage, "--strict goes with --file"},
		{[]string{"--type", "a", "--replace"}, cli.Usage, "--replace goes with --file"},
		{[]string{"--type", "a", "--count", "0"}, cli.Usage, "--count 0: want 1 or more"},
		{[]string{"--type", "a", "--count", "many"}, cli.Usage, "see enqueue --help"},
		{[]string{"--type", "a", "--count", "99999999999999999999"}, cli.Usage, "see enqueue --help"},
		{[]string{"--type", ""}, cli.Usage, "--type is empty"},
		{[]string{"--type", "a\xff"}, cli.Usage, "--type: \"a\\xff\" is not valid UTF-8"},
		{[]string{"--type", "a", "--queue", "\xff"}, cli.Usage, "--queue: \"\\xff\" is not valid UTF-8"},
		{[]string{"--type", "a", "--payload", "{"}, cli.Usage, "--payload is not JSON: {"},
		{[]string{"--fiel", "x"}, cli.Usage, "unknown flag: --fiel"},
		{[]string{"jobs.ndjson"}, cli.Usage, `unexpected argument "jobs.ndjson": did you mean "--file jobs.ndjson"? see enqueue --help`},
		{[]string{"--type", "a", "--redis", "nowhere"}, cli.Usage, `--redis "nowhere" is not an address`},
		{[]string{"--type", "a", "--config", "missing.yaml"}, cli.Usage, "missing.yaml"},
		{[]string{"--type", "a", "--config", config}, cli.Usage, config + ":2:3: "},
		{[]string{"--file", "missing.ndjson"}, cli.Failed, "missing.ndjson: no such file"},
		{[]string{"--type", "a", "--redis", "127.0.0.1:1"}, cli.Failed, "cannot use Redis at 127.0.0.1:1"},
		{[]string{"--version"}, cli.Done, ""},
		{[]string{"--help"}, cli.Done, ""},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			got := enqueueWith(t, nil, tt.args...)
			got.want(t, tt.status, tt.says)
			if n := strings.Count(got.stderr, "\n"); tt.status != cli.Done && n != 1 {
				t.Errorf("%d lines on standard error, want 1:\n%s", n, got.stderr)
			}
		})
	}
}

func TestInputWithoutLines(t *testing.T) {
	addr := redistest.Start(t)
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, tt := range []struct {
		name  string
		stdin io.Reader
		file  string
		says  string
	}{
		{"empty file", nil, write(t, ""), "has no job lines"},
		{"blank lines only", nil, write(t, "\n \n\n"), "has no job lines"},
		{"empty standard input", strings.NewReader(""), "-", "standard input has no job lines"},
		{"closed standard input", closed, "-", "cannot read standard input"},
		{"directory", nil, t.TempDir(), "is a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			enqueueWith(t, tt.stdin, "--redis", addr, "--file", tt.file).want(t, cli.Failed, tt.says)
		})
	}
}

// TestRefusalLeavesTheInput ends on a refusal by Redis while standard input has more to give.
func TestRefusalLeavesTheInput(t *testing.T) {
	addr := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "asynq:{default}:pending", "no list", 0).Err(); err != nil {
		t.Fatal(err)
	}
	text, _ := jobLines(20_000)
	enqueueWith(t, strings.NewReader(text), "--redis", addr, "--file", "-").
		want(t, cli.Failed, "ended before any line was certain: WRONGTYPE")
}
