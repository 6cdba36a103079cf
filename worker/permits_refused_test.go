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
	listener, err := admin.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := admin.Serve(listener, w, admin.Options{})
	defer func() {
		http.DefaultClient.CloseIdleConnections()
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	}()
	overview := func() string {
		reply, err := http.Get("http://" + listener.Addr().String() + "/api/overview")
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		body, _ := io.ReadAll(reply.Body)
		return string(body)
	}
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
	for deadline := time.Now().Add(20 * time.Second); logged.FilterMessage(says).Len() == 0 || !strings.Contains(overview(), says+": "+why); <-time.After(20 * time.Millisecond) {
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
