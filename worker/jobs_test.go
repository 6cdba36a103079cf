package worker

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/config"
)

func TestPatterns(t *testing.T) {
	cfg := config.Default()
	cfg.Jobs = map[string]config.Job{
		"*": {}, "email:": {}, "email:send*": {}, "email:send": {}, "image": {}, "image:resize:": {},
	}
	jobs, err := newJobs(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &Worker{jobs: jobs}
	for taskType, want := range map[string]string{
		"email:send":         "email:send",
		"email:sendlater":    "email:send*",
		"email:":             "email:",
		"email:draft":        "email:",
		"image":              "image",
		"images":             "*",
		"image:resize:small": "image:resize:",
		"image:resize":       "*",
		"":                   "*",
	} {
		if got := w.jobFor(taskType); got == nil || got.name != want {
			t.Errorf("%q: got %v, want the job %q", taskType, got, want)
		}
	}
	w.jobs = jobs[:len(jobs)-1] // "*" comes last
	if got := w.jobFor("images"); got != nil {
		t.Errorf("images: got the job %q, want none", got.name)
	}
}

func TestPausedLimits(t *testing.T) {
	tests := []struct {
		name   string
		job    string
		paused []string
	}{
		{"the keyed one", "{limits: [fleet, worker, account]}", []string{"account"}},
		{"else the overall ones", "{limits: [fleet, worker, day]}", []string{"fleet", "day"}},
		{"as configured", "{limits: [fleet, worker, account], pause_on_429: [fleet, account]}", []string{"fleet", "account"}},
		{"none", "{limits: [fleet, worker, account], pause_on_429: []}", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cfg, err := config.Parse("config.yaml", []byte(`
limits:
  fleet: {rate: 100/1s}
  day: {rate: 1000/24h}
  worker: {rate: 10/1s, type: per_client}
  account: {rate: 1/1s, key: payload.account.id}
jobs:
  all: {limits: [fleet, day, worker, account]}
  x: `+tt.job))
			if err != nil {
				t.Fatal(err)
			}
			jobs, err := newJobs(cfg)
			if err != nil {
				t.Fatal(err)
			}
			j := jobs[slices.IndexFunc(jobs, func(j *job) bool { return j.name == "x" })]
			var got []string
			for _, i := range j.pauses {
				got = append(got, j.limits[i].name)
			}
			if !slices.Equal(got, tt.paused) {
				t.Errorf("got %v, want %v", got, tt.paused)
			}
		})
	}
}

func TestRetryDelay(t *testing.T) {
	task := asynq.NewTask("x", nil)
	tests := []struct {
		err  error
		want time.Duration
	}{
		{asynq.ErrLeaseExpired, 0},
		{&ThrottledError{RetryAfter: time.Second}, time.Second},
		{&ThrottledError{RetryAfter: time.Second, parks: true}, time.Second + fallback},
	}
	for _, tt := range tests {
		if got := retryDelay(3, tt.err, task); got != tt.want {
			t.Errorf("%v: got %v, want %v", tt.err, got, tt.want)
		}
	}
	if got := retryDelay(0, errors.New("broken"), task); got < 15*time.Second {
		t.Errorf("a failure comes back after %v, want asynq's backoff", got)
	}
}

func TestThrottledErrorText(t *testing.T) {
	err := &ThrottledError{Limiter: "api", RetryAfter: 1500 * time.Millisecond, Err: context.Canceled}
	if got, want := err.Error(), `throttled by limiter "api", next try in about 1.5s: context canceled`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, context.Canceled) {
		t.Error("the cause is not found by errors.Is")
	}
}

func TestEntryName(t *testing.T) {
	for _, c := range []entry{{queue: "default", id: "a:b"}, {queue: "a:b %", id: "c"}, {queue: "q", id: ""}} {
		queue, id, err := parseEntry(c.name())
		if err != nil || queue != c.queue || id != c.id {
			t.Errorf("%+v: %q reads as %q, %q, %v", c, c.name(), queue, id, err)
		}
	}
}

func TestLineWeights(t *testing.T) {
	queues := map[string]int{"critical": 6, "default": 3, "low": 1, "lowest": 1}
	if got := lineWeights(config.Pool{Queues: queues}); got["critical"] != 6 || got["low"] != 1 {
		t.Errorf("got %v, want the queues' own weights", got)
	}
	got := lineWeights(config.Pool{Queues: queues, Strict: true})
	if got["critical"] != 1_000_000 || got["default"] != 1000 || got["low"] != 1 || got["lowest"] != 1 {
		t.Errorf("strict: got %v", got)
	}
}
