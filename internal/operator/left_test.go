package operator

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// TestLeft: what is not where the operator put it is an error, and so is a job that still waits.
func TestLeft(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), MaxRetries: -1})
	defer rdb.Close()
	began := time.Now()
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	o := New(Options{
		Inspector: inspector, Redis: rdb, Queues: []string{"default"}, Rand: rand.New(rand.NewPCG(1, 1)), Now: func() time.Duration { return time.Since(began) },
		Failed: func(info *asynq.TaskInfo) bool { return info.ID == "failed" },
	})
	client := asynq.NewClientFromRedisClient(rdb)
	add := func(ids ...string) {
		t.Helper()
		for _, id := range ids {
			if _, err := client.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(id)); err != nil {
				t.Fatal(err)
			}
			o.Add(id, "default", 0)
		}
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	add("shelved", "shelved and run by somebody else")
	check(o.archiveAll(t.Context(), "default", inspector.ArchiveAllPendingTasks))
	check(inspector.RunTask("default", "shelved and run by somebody else"))
	add("waits", "lost", "failed", "archived by nobody", "deleted", "deleted, and there", "perhaps deleted")
	check(inspector.ArchiveTask("default", "failed"))
	check(inspector.ArchiveTask("default", "archived by nobody"))
	for _, id := range []string{"lost", "deleted", "perhaps deleted"} {
		check(inspector.DeleteTask("default", id))
	}
	o.jobs["deleted"].deleted, o.jobs["deleted, and there"].deleted, o.jobs["perhaps deleted"].deleted = yes, yes, perhaps
	err := o.Left(t.Context())
	if err == nil {
		t.Fatal("nothing is wrong")
	}
	got := strings.Split(err.Error(), "\n")
	want := []string{
		"shelved and run by somebody else was archived by hand, was not run since, and is pending; at ", "waits is stuck: it is pending",
		"lost is lost", "archived by nobody is archived, and nobody did that", "deleted, and there was deleted, and is pending",
	}
	if len(got) != len(want) {
		t.Fatalf("%q, want %q", got, want)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%q, want %q", got[i], want[i])
		}
	}
}
