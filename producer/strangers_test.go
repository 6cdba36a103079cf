package producer_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/producer"
)

// TestIDsWithControlCharacters: none gets into Redis, by no way; ids of all languages do.
func TestIDsWithControlCharacters(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer rdb.Close()
	p := producer.New(rdb)
	var bad []string
	for r := range rune(0x100) {
		if unicode.IsControl(r) {
			bad = append(bad, string(r), "a"+string(r), string(r)+"a")
		}
	}
	bad = append(bad, "a\nFORGED", "a\x1b[2J", "a\x1b]0;title\x07", "a\u009b2J", "a\x9b2J", "\xff")
	for _, id := range bad {
		_, err := p.Enqueue(t.Context(), producer.Job{Type: "t", ID: id})
		if job, ok := errors.AsType[*producer.JobError](err); !ok || job.Field != "id" {
			t.Errorf("%q: %v", id, err)
		}
		s := p.Stream(t.Context(), newTally().events())
		if err := s.Add(1, producer.Job{Type: "t", ID: id}); !errors.Is(err, producer.ErrInvalidJob) {
			t.Errorf("%q in a stream: %v", id, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		line, err := json.Marshal(map[string]string{"type": "t", "id": id})
		if err != nil {
			t.Fatal(err)
		}
		if job, err := producer.ParseJob(line); !errors.Is(err, producer.ErrInvalidJob) && job.ID == id { // JSON has no bytes that are not UTF-8
			t.Errorf("%q in a line: %v", id, err)
		}
	}
	if n := rdb.DBSize(t.Context()).Val(); n != 0 {
		t.Errorf("%d keys in Redis, want none", n)
	}
	for _, id := range []string{"order-1", "Zürich 東京", "a\u00a0b", "👩‍🔬", `a\nb`, "50%"} {
		if _, err := p.Enqueue(t.Context(), producer.Job{Type: "t", ID: id}); err != nil {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestTextsThatAreNoUTF8: asynq cannot store them, so they are refused at once. A Stream would try
// for ever. A payload may be any bytes.
func TestTextsThatAreNoUTF8(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer rdb.Close()
	p := producer.New(rdb)
	const secret = "s3cret"
	for field, job := range map[string]producer.Job{
		"type":    {Type: "a\xff"},
		"queue":   {Type: "a", Queue: "\xc3"},
		"headers": {Type: "a", Headers: map[string]string{"tenant": secret + "\xff"}},
		"name":    {Type: "a", Headers: map[string]string{"ten\xffant": secret}},
	} {
		if field == "name" {
			field = "headers"
		}
		for way, enqueue := range ways {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := enqueue(ctx, p, job)
			cancel()
			if bad, ok := errors.AsType[*producer.JobError](err); !ok || bad.Field != field || !strings.Contains(err.Error(), "UTF-8") || strings.Contains(err.Error(), secret) {
				t.Errorf("%s with bad %s: %v", way, field, err)
			}
		}
	}
	if _, err := p.Enqueue(t.Context(), producer.Job{Type: "a", Payload: []byte("\xff"), Headers: map[string]string{"ü": "東京"}}); err != nil {
		t.Error(err)
	}
}

// TestArchived: one job alone and a stream say the same of an id whose job failed for good.
func TestArchived(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: redistest.Start(t)})
	defer rdb.Close()
	p, inspector := producer.New(rdb), asynq.NewInspectorFromRedisClient(rdb)
	job := producer.Job{Type: "t", ID: "order-1", Queue: "low", UniqueFor: time.Hour, ProcessIn: time.Hour}
	for range 2 {
		if _, err := p.Enqueue(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Enqueue(t.Context(), job); !producer.AlreadyThere(err) || errors.Is(err, producer.ErrArchived) {
			t.Errorf("scheduled: %v", err)
		}
		if err := inspector.ArchiveTask("low", job.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Enqueue(t.Context(), job); !producer.AlreadyThere(err) || !errors.Is(err, producer.ErrArchived) {
			t.Errorf("archived: %v", err)
		}
		job.Replace = true
		var results []producer.Result
		s := p.Stream(t.Context(), producer.StreamEvents{Done: func(r producer.Result) { results = append(results, r) }, Outage: func(err error) { t.Error(err) }})
		for line := range 2 {
			if err := s.Add(line+1, job); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Close(); err != nil || len(results) != 2 || !errors.Is(errors.Join(results[0].Err, results[1].Err), asynq.ErrTaskIDConflict) && !producer.AlreadyThere(errors.Join(results[0].Err, results[1].Err)) {
			t.Errorf("replaced by one of two: %v, %+v", err, results)
		}
		if info, err := inspector.GetTaskInfo("low", job.ID); err != nil || info.State != asynq.TaskStateScheduled {
			t.Errorf("%+v, %v", info, err)
		}
		if err := inspector.DeleteTask("low", job.ID); err != nil {
			t.Fatal(err)
		}
		job.Replace = false
	}
}

// TestArchivedHoldsTheLock: a job that failed for good keeps its unique lock, so that a second one
// never runs. Its error says so, and which job it is. A job that waits or runs is no error.
func TestArchivedHoldsTheLock(t *testing.T) {
	for way, enqueue := range ways {
		for name, job := range map[string]producer.Job{
			"no id":            {},
			"another id":       {ID: "b2"},
			"replaces nothing": {ID: "b2", Replace: true},
			"later":            {ID: "b2", ProcessIn: time.Hour},
			"its id":           {ID: "b1"},
		} {
			t.Run(way+"/"+name, func(t *testing.T) {
				rdb := connect(t, redistest.Start(t))
				p := producer.New(rdb)
				job.Type, job.Payload, job.UniqueFor = "a", []byte("1"), time.Hour
				old := job
				old.ID, old.Replace, old.ProcessIn = "b1", false, 0
				if _, err := p.Enqueue(t.Context(), old); err != nil {
					t.Fatal(err)
				}
				if err := enqueue(t.Context(), p, job); !producer.AlreadyThere(err) || errors.Is(err, producer.ErrArchived) {
					t.Errorf("pending: %v", err)
				}
				if err := asynq.NewInspectorFromRedisClient(rdb).ArchiveTask("default", "b1"); err != nil {
					t.Fatal(err)
				}
				if err := enqueue(t.Context(), p, job); !producer.AlreadyThere(err) || !errors.Is(err, producer.ErrArchived) || !strings.Contains(err.Error(), `"b1"`) {
					t.Errorf("archived: %v", err)
				}
				if job.ID != "b2" {
					return
				}
				// A job with its id that is there runs, whoever has the lock.
				if _, err := p.Enqueue(t.Context(), producer.Job{Type: "a", ID: "b2"}); err != nil {
					t.Fatal(err)
				}
				if err := enqueue(t.Context(), p, job); !producer.AlreadyThere(err) || errors.Is(err, producer.ErrArchived) {
					t.Errorf("there without the lock: %v", err)
				}
			})
		}
	}
}
