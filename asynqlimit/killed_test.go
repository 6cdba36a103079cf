package asynqlimit_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
)

const (
	// childEnv makes the test binary run a server on the Redis at that address.
	childEnv = "JOBTHROTTLE_TEST_CHILD"
	slowHold = `
limits: { api: { rate: 1/8s } }
jobs: { "x:limited": { limits: [api], hold: 10m } }
`
)

// TestChild is not a test: it is the process that TestKilledWithAFullRoom kills.
func TestChild(t *testing.T) {
	addr := os.Getenv(childEnv)
	if addr == "" {
		t.Skip("run by TestKilledWithAFullRoom")
	}
	cfg, err := config.Parse("config.yaml", []byte(slowHold))
	if err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	limits, err := asynqlimit.New(rdb, cfg, asynqlimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("x", func(context.Context, *asynq.Task) error {
		fmt.Println("started")
		select {}
	})
	srv := asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(asynq.Config{Concurrency: 20, LogLevel: asynq.FatalLevel}))
	t.Fatal(limits.Serve(context.Background(), srv, mux))
}

// TestKilledWithAFullRoom: a process is killed in which jobs wait and one runs. The one that ran
// has used up a retry, by asynq's rules. Those that waited run elsewhere, also on their last
// attempt, and have lost nothing.
func TestKilledWithAFullRoom(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	child := exec.Command(os.Args[0], "-test.run=^TestChild$")
	child.Env = append(os.Environ(), childEnv+"="+s.rdb.Options().Addr)
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	s.enqueue("x:limited", "runs", asynq.MaxRetry(3))
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	const waiting = 8
	for i := range waiting {
		s.enqueue("x:limited", fmt.Sprint("waits", i), asynq.MaxRetry(0), asynq.Retention(time.Hour))
	}
	s.await(10*time.Second, func() (bool, string) { // one that asks, and may begin, is not on the list
		n := s.rdb.SCard(t.Context(), "asynq:{default}:jt:room").Val()
		return n == waiting, fmt.Sprintf("%d wait; %+v", n, s.queue("default"))
	})
	active := s.queue("default").Active
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	// asynq's recoverer searches when it starts for leases that ended 30s ago.
	for _, id := range s.rdb.ZRange(t.Context(), "asynq:{default}:lease", 0, -1).Val() {
		s.rdb.ZAdd(t.Context(), "asynq:{default}:lease", redis.Z{Member: id, Score: float64(time.Now().Add(-time.Hour).Unix())})
	}
	s.rdb.Del(t.Context(), "api", "{api}:permits", "{api}:value")
	s.serve(member{yaml: fiftyPerSecond})
	s.awaitStarts("waits", waiting, 20*time.Second)
	s.await(10*time.Second, func() (bool, string) {
		q := s.queue("default")
		return q.Completed == waiting, fmt.Sprintf("%d were active; %+v", active, q)
	})
	tasks, err := s.inspector.ListCompletedTasks("default")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if task.Retried != 0 {
			t.Errorf("%s has used up %d retries", task.ID, task.Retried)
		}
	}
	if info, err := s.inspector.GetTaskInfo("default", "runs"); err != nil || info.Retried != 1 {
		t.Errorf("the one that ran: %+v, %v", info, err)
	}
}
