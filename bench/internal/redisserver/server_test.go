package redisserver

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// started is a server for the length of the test.
func started(t *testing.T, args ...string) *Server {
	t.Helper()
	redistest.Require(t)
	s, err := Start(args...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestUsage(t *testing.T) {
	s := started(t)
	defer s.Stop()
	ctx := t.Context()
	rdb := redis.NewClient(&redis.Options{Addr: s.Addr})
	defer rdb.Close()

	before, err := s.Usage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	busy := redis.NewScript(`for i = 1, 20000000 do end; redis.call("SET", KEYS[1], string.rep("x", 5000)); return 1`)
	for range 3 {
		if err := busy.Run(ctx, rdb, []string{"key"}).Err(); err != nil { // EVALSHA, EVAL, EVALSHA, EVALSHA
			t.Fatal(err)
		}
	}
	if err := rdb.Ping(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	after, err := s.Usage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if used := after.Sub(before); used.ScriptCalls != 4 || used.CPU <= 0 {
		t.Errorf("%d script calls and %v of CPU, want 4 and some", used.ScriptCalls, used.CPU)
	}
	if n, err := s.KeyBytes(ctx); err != nil || n < 5000 || n > 10000 {
		t.Errorf("keys take %d bytes (%v), want about 5000", n, err)
	}
	if err := rdb.Set(ctx, "expires", "x", time.Hour).Err(); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Memory(ctx); err != nil || m.Used < 5000 || m.Keys != 2 || m.Lasting != 1 {
		t.Errorf("memory %+v (%v), want 2 keys, 1 of them for good", m, err)
	}
	if err := s.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if m, err := s.Memory(ctx); err != nil || m.Keys != 0 || m.Lasting != 0 {
		t.Errorf("after Flush memory %+v (%v), want no keys", m, err)
	}
	if n, err := s.KeyBytes(ctx); err != nil || n != 0 {
		t.Errorf("after Flush keys take %d bytes (%v), want none", n, err)
	}
	if v, err := s.Version(ctx); err != nil || v == "" {
		t.Errorf("version %q (%v)", v, err)
	}
}

func TestStopLeavesNothing(t *testing.T) {
	s := started(t)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory is still there: %v", err)
	}
	if conn, err := net.Dial("tcp", s.Addr); err == nil {
		conn.Close()
		t.Error("it still answers")
	}
}

// TestRestart: what a server with an append-only file has acknowledged outlives a power cut.
func TestRestart(t *testing.T) {
	s := started(t, "--appendonly", "yes", "--appendfsync", "always")
	defer s.Stop()
	addr := s.Addr
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "key", "value", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if conn, err := net.Dial("tcp", addr); err == nil {
		conn.Close()
		t.Error("it answers while it is dead")
	}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	if got, err := rdb.Get(t.Context(), "key").Result(); err != nil || got != "value" || s.Addr != addr {
		t.Errorf("%q (%v) at %s, want the value, at %s", got, err, s.Addr, addr)
	}
}

func TestStartWithoutRedis(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("%v, want an error that says what is missing", err)
	}
}
