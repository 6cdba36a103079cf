package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

// TestNobodyReadsTheLog: whoever read what a worker prints has ended, as `tee` does on Ctrl-C. The worker goes on,
// and drains when it is told to, by SIGHUP, too, which comes when a terminal is closed.
func TestNobodyReadsTheLog(t *testing.T) {
	for _, told := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(told.String(), func(t *testing.T) {
			if signal.Ignored(told) {
				t.Skip("ignored, as under nohup: the worker inherits that")
			}
			nobodyReadsTheLog(t, told)
		})
	}
}

func nobodyReadsTheLog(t *testing.T, told syscall.Signal) {
	began, goesOn := make(chan struct{}, 1), make(chan struct{})
	api := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		began <- struct{}{}
		<-goesOn
	}))
	t.Cleanup(api.Close)
	addr := redistest.Start(t)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("redis: { addrs: [%q] }\nhttp: { allow_hosts: [%q] }\n", addr, api.Listener.Addr())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	worker := exec.CommandContext(ctx, binary("worker"), "--config", config)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	worker.Stdout, worker.Stderr = write, write
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	if _, err := bufio.NewReader(read).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	client := asynq.NewClientFromRedisClient(rdb)
	if _, err := client.Enqueue(asynq.NewTask("http:request", fmt.Appendf(nil, `{"url":%q}`, api.URL)), asynq.Retention(time.Hour), asynq.MaxRetry(0)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-began:
	case <-ctx.Done():
		t.Fatal("the job does not start")
	}
	read.Close()
	if err := worker.Process.Signal(told); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- worker.Wait() }()
	select { // it has said that it drains
	case err = <-ended:
	case <-time.After(time.Second):
	}
	close(goesOn)
	if err == nil {
		err = <-ended
	}
	if exit, failed := errors.AsType[*exec.ExitError](err); failed {
		t.Errorf("the worker ended with %v", exit)
	}
	if q, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo("default"); err != nil || q.Completed != 1 || q.Active != 0 {
		t.Errorf("%+v, %v; want the job done", q, err)
	}
}
