package worker

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/worker/admin"
)

// TestPermitsRefused: while too few replicas acknowledge grants, jobs with limits wait and those without run. Log and page
// say why, though Redis does all that others ask.
func TestPermitsRefused(t *testing.T) {
	t.Parallel()
	master := redistest.New(t, "--repl-diskless-sync-delay", "0")
	host, port := master.HostPort()
	replica := redistest.New(t, "--replicaof", host, port)
	rdb := redis.NewClient(&redis.Options{Addr: master.Addr})
	t.Cleanup(func() { rdb.Close() })
	if n, err := rdb.Wait(t.Context(), 1, 10*time.Second).Result(); err != nil || n != 1 {
		t.Fatalf("%d replicas in step: %v", n, err)
	}
	cfg, err := config.Parse("config.yaml", fmt.Appendf(nil, `
redis: { addrs: [%q], wait_replicas: 1 }
limits: { api: { rate: 10/1s } }
jobs: { limited: { limits: [api], hold: forever } }
`, master.Addr))
	if err != nil {
		t.Fatal(err)
	}
	core, logged := observer.New(zap.InfoLevel)
	w, err := New(cfg, zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	limited, free := make(chan struct{}, 2), make(chan struct{}, 2)
	for kind, ran := range map[string]chan struct{}{"limited": limited, "free": free} {
		w.HandleFunc(kind, func(context.Context, *asynq.Task) error { ran <- struct{}{}; return nil })
	}
	(&fleet{t: t}).run(w)
	overview := pageOf(t, w)
	client := asynq.NewClientFromRedisClient(rdb)
	enqueue := func(kind string) {
		t.Helper()
		if _, err := client.Enqueue(asynq.NewTask(kind, nil)); err != nil {
			t.Fatal(err)
		}
	}
	within := func(what string, done <-chan struct{}) {
		t.Helper()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatalf("not within 20s: %s; it logged %v", what, logged.All())
		}
	}
	enqueue("limited")
	within("a job with a limit runs", limited)

	replica.Freeze()
	enqueue("limited")
	enqueue("free")
	within("a job without limits runs", free)
	const says, why = "Redis refuses calls for permits; jobs with limits wait and ask again", "0 of 1 replicas acknowledged within 1s"
	for deadline := time.Now().Add(20 * time.Second); logged.FilterMessage(says).Len() == 0 || !strings.Contains(overview(), pageSays+why); <-time.After(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20s: what keeps jobs from running is told; it logged %v, and the page has %s", logged.All(), overview())
		}
	}
	replica.Thaw()
	within("the job runs when the replica is back", limited)
	if told := logged.FilterMessage(says).All(); len(told) != 1 || !strings.Contains(fmt.Sprint(told[0].ContextMap()), why) {
		t.Errorf("it logged %v, want it once a minute, with %q", told, why)
	}
}

// pageSays is how the page tells that Redis refuses something.
const pageSays = "Redis refuses what jobs with limits need; they wait and ask again: "

// pageOf serves a worker's page, and returns what it shows.
func pageOf(t *testing.T, w *Worker) (overview func() string) {
	t.Helper()
	listener, err := admin.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := admin.Serve(listener, w, admin.Options{})
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return func() string {
		reply, err := http.Get("http://" + listener.Addr().String() + "/api/overview")
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		body, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
}

// TestPageOfAFullRedis: the page says that Redis is full for as long as jobs wait because of it, also when all of them are parked
// and none asks for permits any more. And nobody knows then who serves other queues: their servers cannot write that they run.
func TestPageOfAFullRedis(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { rdb.Close() })
	cfg, err := config.Parse("config.yaml", fmt.Appendf(nil, `
redis: { addrs: [%q] }
limits: { api: { rate: 1/1s } }
jobs: { limited: { limits: [api], hold: 0 } }
`, server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(cfg, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan struct{}, 100)
	w.HandleFunc("limited", func(context.Context, *asynq.Task) error { ran <- struct{}{}; return nil })
	(&fleet{t: t}).run(w)
	overview := pageOf(t, w)
	client := asynq.NewClientFromRedisClient(rdb)
	enqueue := func(queue string) {
		t.Helper()
		if _, err := client.Enqueue(asynq.NewTask("limited", nil), asynq.Queue(queue)); err != nil {
			t.Fatal(err)
		}
	}
	enqueue("elsewhere") // a server of another program serves it
	for range 30 {
		enqueue("default")
	}
	<-ran
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "1").Err(); err != nil {
		t.Fatal(err)
	}
	tells := func(page string) bool {
		return strings.Contains(page, pageSays) && strings.Contains(page, "OOM command not allowed")
	}
	for until := time.Now().Add(20 * time.Second); !tells(overview()); <-time.After(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("not within 20s: the page tells that Redis is full: %s", overview())
		}
	}
	for until := time.Now().Add(12 * time.Second); time.Now().Before(until); <-time.After(time.Second) {
		if page := overview(); !tells(page) {
			t.Fatalf("the page has forgotten that Redis is full: %s", page)
		}
	}
	others, err := w.OtherQueues(t.Context())
	if err != nil || len(others.Queues) != 1 || !others.Queues[0].Served {
		t.Errorf("%+v (%v), want one queue of which nobody knows whether it is served", others, err)
	}
	for len(ran) > 0 {
		<-ran
	}
	if err := rdb.ConfigSet(t.Context(), "maxmemory", "0").Err(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ran:
	case <-time.After(20 * time.Second):
		t.Error("no job runs 20s after Redis has room again")
	}
}
