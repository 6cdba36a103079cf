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
	"github.com/jobthrottle/jobthrottle/producer"
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

// TestKilledWithAFullRoom: a process is killed in which jobs wait and two run. Those that ran
// have used up a retry, by asynq's rules, and the one that had none is archived. Those that waited
// run elsewhere, also on their last attempt, and have lost nothing.
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
	p := producer.New(s.rdb)
	enqueue := func(typ, id string) { // without retries
		t.Helper()
		if _, err := p.Enqueue(t.Context(), producer.Job{Type: typ, ID: id, MaxRetry: producer.None}); err != nil {
			t.Fatal(err)
		}
	}
	s.enqueue("x:limited", "runs", asynq.MaxRetry(3))
	enqueue("x:free", "runs on its only attempt")
	started := bufio.NewReader(out)
	for range 2 {
		if line, err := started.ReadString('\n'); err != nil {
			t.Fatalf("%q, %v", line, err)
		}
	}
	const waiting = 8
	for i := range waiting {
		if id := fmt.Sprint("waits", i); i%2 == 0 {
			s.enqueue("x:limited", id, asynq.MaxRetry(0), asynq.Retention(time.Hour))
		} else {
			enqueue("x:limited", id)
		}
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
	info, err := s.inspector.GetTaskInfo("default", "runs on its only attempt")
	if err != nil || info.State != asynq.TaskStateArchived || info.MaxRetry != 0 || len(s.seen(info.ID)) > 0 {
		t.Errorf("the one that ran on its only attempt: %+v, %v, and %d starts elsewhere", info, err, len(s.seen("runs on")))
	}
}
