package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// TestRelease: what waits is back in its queue, whatever it waits for, and nothing
// of its lines is left.
func TestRelease(t *testing.T) {
	s := newSite(t)
	w := s.workers(`
limits: { api: { rate: 1/1h } }
pools: [ { name: default, concurrency: 4 } ]
jobs: { "x:limited": { limits: [api], hold: 0 } }
`)
	stop := w.start(nil)
	w.enqueue("x:limited", "first")
	w.awaitStarts(1)
	for i := range 20 {
		w.enqueue([]string{"x:limited", "unknown"}[i%2], fmt.Sprint("waits", i))
	}
	inspector := asynq.NewInspectorFromRedisClient(s.rdb)
	deadline := time.Now().Add(20 * time.Second)
	for {
		q, err := inspector.GetQueueInfo("default")
		if err != nil {
			t.Fatal(err)
		}
		if q.Retry == 20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%+v", q)
		}
		<-time.After(20 * time.Millisecond)
	}
	stop()
	if text := s.done("release", "--all"); !strings.Contains(text, "20 jobs are back") {
		t.Error(text)
	}
	if q, err := inspector.GetQueueInfo("default"); err != nil || q.Pending != 20 || q.Retry != 0 {
		t.Errorf("%+v, %v: want 20 pending", q, err)
	}
	if keys := s.rdb.Keys(t.Context(), "asynq:{default}:jt:*").Val(); len(keys) > 0 {
		t.Errorf("keys left: %q", keys)
	}
}
