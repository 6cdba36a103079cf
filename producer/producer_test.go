package producer_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/producer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, addr string) redis.UniversalClient {
	t.Helper()
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

func TestEnqueueStoresWhatTheJobSays(t *testing.T) {
	rdb := connect(t, redistest.Start(t))
	p, inspector := producer.New(rdb), asynq.NewInspectorFromRedisClient(rdb)
	for _, tt := range []struct {
		name      string
		job       producer.Job
		queue     string
		maxRetry  int
		timeout   time.Duration
		retention time.Duration
	}{
		{"defaults", producer.Job{Type: "a"}, "default", 25, 30 * time.Minute, 0},
		{"all set", producer.Job{
			Type: "a", ID: "all", Queue: "low", MaxRetry: 3, Timeout: 5 * time.Second, UniqueFor: time.Hour, Retention: time.Minute,
		}, "low", 3, 5 * time.Second, time.Minute},
		{"no retry", producer.Job{Type: "a", MaxRetry: producer.None}, "default", 0, 30 * time.Minute, 0},
		{"an id is remembered for a day", producer.Job{Type: "a", ID: "day"}, "default", 25, 30 * time.Minute, 24 * time.Hour},
		{"unless it says otherwise", producer.Job{Type: "a", ID: "none", Retention: producer.None}, "default", 25, 30 * time.Minute, 0},
		{"whole seconds, never less", producer.Job{
			Type: "a", Queue: "whole", Timeout: 1500 * time.Millisecond, Retention: time.Millisecond,
		}, "whole", 25, 2 * time.Second, time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.job.Headers = map[string]string{"tenant": "x"}
			tt.job.Payload = []byte(`{"n":1}`)
			wrote, err := p.Enqueue(t.Context(), tt.job)
			if err != nil {
				t.Fatal(err)
			}
			got, err := inspector.GetTaskInfo(tt.queue, wrote.ID)
			if err != nil {
				t.Fatal(err)
			}
			if got.MaxRetry != tt.maxRetry || got.Timeout != tt.timeout || got.Retention != tt.retention || string(got.Payload) != `{"n":1}` {
				t.Errorf("stored max retry %d, timeout %v, retention %v, payload %s", got.MaxRetry, got.Timeout, got.Retention, got.Payload)
			}
			if !maps.Equal(got.Headers, tt.job.Headers) {
				t.Errorf("headers %v, want the job's own", got.Headers)
			}
		})
	}
}

func TestEnqueueLater(t *testing.T) {
	rdb := connect(t, redistest.Start(t))
	for _, in := range []time.Duration{time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond, time.Hour} {
		began := time.Now()
		info, err := producer.New(rdb).Enqueue(t.Context(), producer.Job{Type: "a", ProcessIn: in})
		if err != nil || info.State != asynq.TaskStateScheduled {
			t.Fatalf("%+v, %v", info, err)
		}
		due, err := rdb.ZScore(t.Context(), "asynq:{default}:scheduled", info.ID).Result() // asynq lets it start in this second
		if after := time.Unix(int64(due), 0).Sub(began); err != nil || after < in || after > in+5*time.Second {
			t.Errorf("in %v: it may start after %v, %v", in, after, err)
		}
	}
}

// twice sends each pipeline again, as the Redis client does when a reply is lost.
type twice struct{}

func (twice) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (twice) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (twice) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		_ = next(ctx, cmds)
		for _, cmd := range cmds {
			cmd.SetErr(nil)
		}
		return next(ctx, cmds)
	}
}

// TestEnqueueWhenTheReplyIsLost: the job has been written, and its description is that of one that was.
func TestEnqueueWhenTheReplyIsLost(t *testing.T) {
	rdb := connect(t, redistest.Start(t))
	rdb.AddHook(twice{})
	for _, job := range []producer.Job{
		{Type: "a", Timeout: time.Minute}, {Type: "b", ProcessIn: time.Hour}, {Type: "c", UniqueFor: time.Minute}, {Type: "d", UniqueFor: time.Minute, ProcessIn: time.Hour},
	} {
		info, err := producer.New(rdb).Enqueue(t.Context(), job)
		if err != nil {
			t.Errorf("%s: %v", job.Type, err)
			continue
		}
		written, err := asynq.NewInspectorFromRedisClient(rdb).GetTaskInfo("default", info.ID)
		if err != nil {
			t.Fatal(err)
		}
		if info.State != written.State || info.MaxRetry != written.MaxRetry || info.Timeout != written.Timeout || info.Retention != written.Retention || info.Type != written.Type {
			t.Errorf("%+v, and in Redis %+v", info, written)
		}
		if _, err := producer.New(rdb).Enqueue(t.Context(), job); job.UniqueFor > 0 != errors.Is(err, asynq.ErrDuplicateTask) {
			t.Errorf("%s again: %v", job.Type, err)
		}
	}
}

func TestEnqueueRefusals(t *testing.T) {
	rdb := connect(t, redistest.Start(t))
	p := producer.New(rdb)
	first := producer.Job{Type: "a", ID: "one", Payload: []byte("1"), UniqueFor: time.Minute}
	if _, err := p.Enqueue(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tt := range []struct {
		name  string
		ctx   context.Context
		job   producer.Job
		want  error // nil: any error
		there bool
	}{
		{"same id", t.Context(), producer.Job{Type: "b", ID: "one"}, asynq.ErrTaskIDConflict, true},
		{"same payload", t.Context(), producer.Job{Type: "a", Payload: []byte("1"), UniqueFor: time.Minute}, asynq.ErrDuplicateTask, true},
		{"no type", t.Context(), producer.Job{}, producer.ErrInvalidJob, false},
		{"short timeout", t.Context(), producer.Job{Type: "a", Timeout: time.Millisecond}, producer.ErrInvalidJob, false},
		{"negative timeout", t.Context(), producer.Job{Type: "a", Timeout: -time.Second}, producer.ErrInvalidJob, false},
		{"short lock", t.Context(), producer.Job{Type: "a", UniqueFor: time.Millisecond}, producer.ErrInvalidJob, false},
		{"max retry below none", t.Context(), producer.Job{Type: "a", MaxRetry: -2}, producer.ErrInvalidJob, false},
		{"reserved header", t.Context(), producer.Job{Type: "a", Headers: map[string]string{producer.MaxRetryHeader: "1"}}, producer.ErrInvalidJob, false},
		{"ended context", ended, producer.Job{Type: "a"}, nil, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := p.Enqueue(tt.ctx, tt.job)
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if producer.AlreadyThere(err) != tt.there {
				t.Errorf("AlreadyThere(%v) = %v", err, !tt.there)
			}
		})
	}
}

// TestMaxRetryOfEarlierVersions: they wrote a job's own number into a header.
func TestMaxRetryOfEarlierVersions(t *testing.T) {
	for _, want := range []int{0, 7, math.MaxInt32} {
		if n, ok := producer.MaxRetry(map[string]string{producer.MaxRetryHeader: strconv.Itoa(want)}); !ok || n != want {
			t.Errorf("%d, %v, want %d", n, ok, want)
		}
	}
	for _, headers := range []map[string]string{
		nil, {"other": "1"}, {producer.MaxRetryHeader: ""}, {producer.MaxRetryHeader: "x"}, {producer.MaxRetryHeader: "-1"},
		{producer.MaxRetryHeader: "2147483648"},
	} {
		if n, ok := producer.MaxRetry(headers); ok {
			t.Errorf("%v gave %d", headers, n)
		}
	}
}
