//go:build linux

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestMemoryIsBoundedByLines: whatever the lines consist of, and while Redis
// takes none of them, the process holds few of them.
func TestMemoryIsBoundedByLines(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "enqueue")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	const lines, size, most = 150, 500 << 10, 100 << 20
	long := strings.Repeat("x", size)
	many := new(strings.Builder)
	for i := range size / 12 {
		fmt.Fprintf(many, `"h%06d":"",`, i)
	}
	for name, line := range map[string]string{
		"payload":      `{"type":"t","payload":"` + long + `"}`,
		"header":       `{"type":"t","headers":{"a":"` + long + `"}}`,
		"type":         `{"type":"` + long + `"}`,
		"id":           `{"type":"t","retention":"0s","id":"` + long[:len(long)-10] + `%010d"}`,
		"many headers": `{"type":"t","headers":{` + strings.TrimSuffix(many.String(), ",") + `}}`,
	} {
		t.Run(name, func(t *testing.T) {
			addr := redistest.Start(t)
			rdb := redis.NewClient(&redis.Options{Addr: addr})
			defer rdb.Close()
			if err := rdb.Do(t.Context(), "CLIENT", "PAUSE", 2000, "WRITE").Err(); err != nil {
				t.Fatal(err)
			}
			in, out := io.Pipe()
			go func() {
				for i := range lines {
					text := line
					if name == "id" {
						text = fmt.Sprintf(line, i)
					}
					if _, err := io.WriteString(out, text+"\n"); err != nil {
						return
					}
				}
				out.Close()
			}()
			defer in.Close()
			cmd := exec.CommandContext(t.Context(), bin, "--file", "-", "--redis", addr)
			cmd.Env = append(os.Environ(), "GOGC=100") // as its users have it
			var said bytes.Buffer
			cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = in, &said, &said, time.Second
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			peak, err := held(cmd.Process.Pid, ended)
			if err != nil || !strings.Contains(said.String(), fmt.Sprintf("enqueued %d,", lines)) {
				t.Fatalf("%v: %.300s", err, said.String())
			}
			if peak == 0 || peak > most {
				t.Errorf("it held %d MB, want %d at most", peak>>20, most>>20)
			}
		})
	}
}

// held is the most memory that a process had at a time until it ended, in bytes, and how it
// ended. The figure of Wait is of no help: it begins with the memory of this process.
func held(pid int, ended <-chan error) (peak int64, err error) {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case err := <-ended:
			return peak, err
		case <-poll.C:
		}
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(status)) {
			var kb int64
			if n, _ := fmt.Sscanf(line, "VmHWM: %d kB", &kb); n == 1 {
				peak = max(peak, kb<<10)
			}
		}
	}
}
