package producer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/producer"
)

// ways are the two ways to write a job.
var ways = map[string]func(ctx context.Context, p *producer.Producer, job producer.Job) error{
	"Enqueue": func(ctx context.Context, p *producer.Producer, job producer.Job) error {
		_, err := p.Enqueue(ctx, job)
		return err
	},
	"Stream": func(ctx context.Context, p *producer.Producer, job producer.Job) error {
		var result error
		s := p.Stream(ctx, producer.StreamEvents{Done: func(r producer.Result) { result = r.Err }, Outage: func(error) {}})
		if err := s.Add(1, job); err != nil {
			return err
		}
		return errors.Join(s.Close(), result)
	},
}

// archive is an archived job with an ID, as it was when it failed.
func archive(t *testing.T, rdb redis.UniversalClient, job producer.Job) {
	t.Helper()
	if _, err := producer.New(rdb).Enqueue(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	if err := asynq.NewInspectorFromRedisClient(rdb).ArchiveTask("default", job.ID); err != nil {
		t.Fatal(err)
	}
}

// keysOf are all keys of Redis but those that every queue has.
func keysOf(t *testing.T, rdb redis.UniversalClient) map[string]string {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	dumps := map[string]string{}
	for _, key := range keys {
		if key != "asynq:queues" {
			dumps[key] = rdb.Dump(t.Context(), key).Val()
		}
	}
	return dumps
}

func sameKeys(t *testing.T, got, want map[string]string) {
	t.Helper()
	for key := range want {
		if got[key] != want[key] {
			t.Errorf("%s was changed, or is gone", key)
		}
	}
	for key := range got {
		if _, had := want[key]; !had {
			t.Errorf("%s was left", key)
		}
	}
}

// A job replaces an archived one whatever the unique locks of the two are, and the remaining
// lock is its own.
func TestReplaceWithOtherLocks(t *testing.T) {
	for way, enqueue := range ways {
		for name, tt := range map[string]struct{ old, new producer.Job }{
			"none":             {producer.Job{}, producer.Job{}},
			"the same":         {producer.Job{UniqueFor: time.Hour}, producer.Job{UniqueFor: time.Hour}},
			"mended payload":   {producer.Job{UniqueFor: time.Hour}, producer.Job{UniqueFor: time.Hour, Payload: []byte("2")}},
			"added":            {producer.Job{}, producer.Job{UniqueFor: time.Hour}},
			"dropped":          {producer.Job{UniqueFor: time.Hour}, producer.Job{}},
			"later":            {producer.Job{}, producer.Job{ProcessIn: time.Hour}},
			"later and unique": {producer.Job{UniqueFor: time.Hour}, producer.Job{ProcessIn: time.Hour, UniqueFor: time.Hour, Payload: []byte("2")}},
		} {
			for _, refusedBefore := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/refused before %v", way, name, refusedBefore), func(t *testing.T) {
					rdb := connect(t, redistest.Start(t))
					inspector := asynq.NewInspectorFromRedisClient(rdb)
					tt.old.Type, tt.old.ID, tt.new.Type, tt.new.ID, tt.new.Replace = "a", "b1", "a", "b1", false
					archive(t, rdb, tt.old)
					was := keysOf(t, rdb)
					if refusedBefore {
						if err := enqueue(t.Context(), producer.New(rdb), tt.new); !errors.Is(err, producer.ErrArchived) {
							t.Errorf("without Replace: %v, want that it is archived", err)
						}
						sameKeys(t, keysOf(t, rdb), was)
					}
					tt.new.Replace = true
					if err := enqueue(t.Context(), producer.New(rdb), tt.new); err != nil {
						t.Errorf("with Replace: %v", err)
					}
					want := asynq.TaskStatePending
					if tt.new.ProcessIn > 0 {
						want = asynq.TaskStateScheduled
					}
					info, err := inspector.GetTaskInfo("default", "b1")
					if err != nil || info.State != want || string(info.Payload) != string(tt.new.Payload) {
						t.Fatalf("the task is %+v, %v", info, err)
					}
					if q, err := inspector.GetQueueInfo("default"); err != nil || q.Archived != 0 || q.Size != 1 {
						t.Errorf("the queue is %+v, %v", q, err)
					}
					// Deleted, it leaves nothing, so nothing of the old one is left.
					if err := inspector.DeleteTask("default", "b1"); err != nil {
						t.Fatal(err)
					}
					sameKeys(t, keysOf(t, rdb), nil)
				})
			}
		}
	}
}

// A job that cannot be written leaves the archived one as it was: another job has
// its unique lock, its queue is broken, or the user may not write it.
func TestReplaceThatFailsChangesNothing(t *testing.T) {
	for way, enqueue := range ways {
		for name, tt := range map[string]struct {
			spoil func(ctx context.Context, rdb redis.UniversalClient) error
			want  error
		}{
			"the lock is another's": {func(ctx context.Context, rdb redis.UniversalClient) error {
				_, err := producer.New(rdb).Enqueue(ctx, producer.Job{Type: "a", ID: "b2", Payload: []byte("2"), UniqueFor: time.Hour})
				return err
			}, asynq.ErrDuplicateTask},
			"the queue is broken": {func(ctx context.Context, rdb redis.UniversalClient) error {
				return rdb.Set(ctx, "asynq:{default}:pending", "no list", 0).Err()
			}, nil},
			"no LPUSH": {deny("lpush"), nil}, "no HSET": {deny("hset"), nil}, "no SET": {deny("set"), nil},
			"no RENAME": {deny("rename"), nil}, "no DEL": {deny("del"), nil}, "no ZREM": {deny("zrem"), nil},
		} {
			t.Run(way+"/"+name, func(t *testing.T) {
				rdb := connect(t, redistest.Start(t))
				old := producer.Job{Type: "a", ID: "b1", UniqueFor: time.Hour, Payload: []byte("1")}
				archive(t, rdb, old)
				if err := tt.spoil(t.Context(), rdb); err != nil {
					t.Fatal(err)
				}
				was := keysOf(t, rdb)
				for _, payload := range []string{"2", "1"} {
					if payload == "1" && tt.want != nil {
						continue // that lock is its own
					}
					job := old
					job.Payload, job.Replace = []byte(payload), true
					err := enqueue(t.Context(), producer.New(rdb), job)
					if err == nil || tt.want != nil && (!errors.Is(err, tt.want) || !errors.Is(err, producer.ErrArchived)) {
						t.Errorf("payload %s: %v", payload, err)
					}
					sameKeys(t, keysOf(t, rdb), was)
				}
			})
		}
	}
}

func deny(command string) func(ctx context.Context, rdb redis.UniversalClient) error {
	return func(ctx context.Context, rdb redis.UniversalClient) error {
		return rdb.Do(ctx, "ACL", "SETUSER", "default", "-"+command).Err()
	}
}

// A refused job leaves no unique lock behind, which would refuse others for a job
// that does not exist. A job that is there keeps its own.
func TestRefusedJobLeavesNoLock(t *testing.T) {
	for way, enqueue := range ways {
		for _, in := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprint(way, in), func(t *testing.T) {
				rdb := connect(t, redistest.Start(t))
				p := producer.New(rdb)
				job := producer.Job{Type: "a", ID: "x", UniqueFor: time.Hour, ProcessIn: in, Payload: []byte("1")}
				if err := enqueue(t.Context(), p, job); err != nil {
					t.Fatal(err)
				}
				was := keysOf(t, rdb)
				if err := enqueue(t.Context(), p, job); !producer.AlreadyThere(err) {
					t.Errorf("the same again: %v", err)
				}
				job.Payload = []byte("2")
				if err := enqueue(t.Context(), p, job); !errors.Is(err, asynq.ErrTaskIDConflict) {
					t.Errorf("another payload: %v", err)
				}
				sameKeys(t, keysOf(t, rdb), was)
				job.ID = "y"
				if err := enqueue(t.Context(), p, job); err != nil {
					t.Errorf("another id: %v", err)
				}
			})
		}
	}
}

// A unique lock is that of a job that is there. A job that is done has none, also if its file is enqueued again, and a lock that
// asynq has forgotten to delete holds up nobody.
func TestLockOfAJobThatIsGone(t *testing.T) {
	for way, enqueue := range ways {
		for name, leave := range map[string]func(t *testing.T, rdb redis.UniversalClient){
			"done": func(t *testing.T, rdb redis.UniversalClient) {
				srv := asynq.NewServerFromRedisClient(rdb, asynq.Config{LogLevel: asynq.FatalLevel})
				done := make(chan struct{})
				if err := srv.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { close(done); return nil })); err != nil {
					t.Fatal(err)
				}
				<-done
				srv.Shutdown()
			},
			"trimmed": func(t *testing.T, rdb redis.UniversalClient) { // as asynq trims an archive that is full
				if err := asynq.NewInspectorFromRedisClient(rdb).ArchiveTask("default", "x"); err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(rdb.ZRem(t.Context(), "asynq:{default}:archived", "x").Err(), rdb.Del(t.Context(), "asynq:{default}:t:x").Err()); err != nil {
					t.Fatal(err)
				}
			},
		} {
			t.Run(fmt.Sprint(way, " ", name), func(t *testing.T) {
				rdb := connect(t, redistest.Start(t))
				p := producer.New(rdb)
				job := producer.Job{Type: "a", ID: "x", UniqueFor: 48 * time.Hour, Retention: time.Hour, Payload: []byte("1")}
				if err := enqueue(t.Context(), p, job); err != nil {
					t.Fatal(err)
				}
				leave(t, rdb)
				if err := enqueue(t.Context(), p, job); name == "done" && !producer.AlreadyThere(err) || name == "trimmed" && err != nil {
					t.Errorf("the same again: %v", err)
				}
				if name == "trimmed" {
					leave(t, rdb)
				}
				job.ID = "y"
				if err := enqueue(t.Context(), p, job); err != nil {
					t.Errorf("another of the same type and payload: %v", err)
				}
			})
		}
	}
}

// A job is replaced under its own id: one that is named like a part of another's keys stays.
func TestReplaceLeavesOtherIDs(t *testing.T) {
	rdb := connect(t, redistest.Start(t))
	p := producer.New(rdb)
	archive(t, rdb, producer.Job{Type: "a", ID: "o-1"})
	for _, job := range []producer.Job{{Type: "a", ID: "o-1:replaced"}, {Type: "a", ID: "o-1", Replace: true}} {
		if _, err := p.Enqueue(t.Context(), job); err != nil {
			t.Fatal(err)
		}
	}
	inspector := asynq.NewInspectorFromRedisClient(rdb)
	for _, id := range []string{"o-1", "o-1:replaced"} {
		if info, err := inspector.GetTaskInfo("default", id); err != nil || info.State != asynq.TaskStatePending {
			t.Errorf("%s: %+v, %v", id, info, err)
		}
	}
}

// Lost replies lose no job: each is there once, as it is now.
func TestReplaceWhenRepliesAreLost(t *testing.T) {
	addr := redistest.Start(t)
	rdb := connect(t, addr)
	const n = 100
	for i := range n {
		archive(t, rdb, producer.Job{Type: "a", ID: jobID(i), UniqueFor: time.Hour, Payload: fmt.Appendf(nil, `{"old":%d}`, i)})
	}
	var replies losses
	p := producer.New(replies.client(t, addr))
	for i := range n {
		job := producer.Job{Type: "a", ID: jobID(i), UniqueFor: time.Hour, Payload: fmt.Appendf(nil, `{"new":%d}`, i), Replace: true}
		if err := ways["Stream"](t.Context(), p, job); err != nil && !producer.AlreadyThere(err) { // it does not know its own write
			t.Fatal(err)
		}
	}
	if replies.lost.Load() < 2 {
		t.Fatalf("%d replies were lost", replies.lost.Load())
	}
	q, err := asynq.NewInspectorFromRedisClient(rdb).GetQueueInfo("default")
	if err != nil || q.Pending != n || q.Archived != 0 || q.Size != n {
		t.Errorf("the queue is %+v, %v", q, err)
	}
}

// rightsToEnqueue are those that docs/redis.md names for every job.
var rightsToEnqueue = []string{"eval", "evalsha", "exists", "hget", "hset", "lpush", "ping", "sadd", "set", "zadd"}

// asUser returns a client of a user that may use only these commands.
func asUser(t *testing.T, addr string, commands ...string) redis.UniversalClient {
	t.Helper()
	rights := []any{"ACL", "SETUSER", "enqueue", "reset", "on", ">x", "~asynq:*"}
	for _, command := range commands {
		rights = append(rights, "+"+command)
	}
	if err := connect(t, addr).Do(t.Context(), rights...).Err(); err != nil {
		t.Fatal(err)
	}
	rdb := redis.NewClient(&redis.Options{Addr: addr, Username: "enqueue", Password: "x"})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// The rights that docs/redis.md names suffice.
func TestReplaceWithItsRights(t *testing.T) {
	addr := redistest.Start(t)
	archive(t, connect(t, addr), producer.Job{Type: "a", ID: "b1", UniqueFor: time.Hour})
	rdb := asUser(t, addr, append(slices.Clone(rightsToEnqueue), "del", "get", "rename", "zrem", "zscore")...)
	for _, payload := range []string{"1", "2"} {
		_, err := producer.New(rdb).Enqueue(t.Context(), producer.Job{Type: "a", ID: "b1", UniqueFor: time.Hour, Payload: []byte(payload), Replace: true})
		if (err != nil) != (payload == "2") || err != nil && !errors.Is(err, asynq.ErrTaskIDConflict) {
			t.Errorf("payload %s: %v", payload, err)
		}
	}
}

// So do those for jobs with a unique lock.
func TestUniqueWithItsRights(t *testing.T) {
	addr := redistest.Start(t)
	archive(t, connect(t, addr), producer.Job{Type: "a", ID: "b1", UniqueFor: time.Hour})
	rdb := asUser(t, addr, append(slices.Clone(rightsToEnqueue), "get")...)
	if _, err := producer.New(rdb).Enqueue(t.Context(), producer.Job{Type: "a", UniqueFor: time.Hour}); !errors.Is(err, producer.ErrArchived) {
		t.Errorf("the lock of an archived job: %v", err)
	}
	rdb = asUser(t, addr, append(slices.Clone(rightsToEnqueue), "get", "del")...)
	if _, err := producer.New(rdb).Enqueue(t.Context(), producer.Job{Type: "a", ID: "b1", UniqueFor: time.Hour, Payload: []byte("2")}); !errors.Is(err, producer.ErrArchived) {
		t.Errorf("the id of an archived job: %v", err)
	}
}
