package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/worker"
)

// TestChangesMeanWhatWasListed: a job that was told to try later waits, and did not fail; one that fails
// after it was listed as waiting is not deleted with those that wait.
func TestChangesMeanWhatWasListed(t *testing.T) {
	s := newSite(t)
	w := s.workers(`
limits: { api: { rate: 1/1h } }
jobs: { "x:api": { limits: [api], hold: 0 } }
`)
	stop := w.start(func(_ context.Context, task *asynq.Task) error {
		switch task.Type() {
		case "x:fails":
			return errors.New("no luck")
		case "x:refused":
			return worker.RetryAfter(time.Hour)
		}
		return nil
	})
	w.enqueue("x:api", "first")
	w.awaitStarts(1)
	w.enqueue("x:api", "parked")
	w.awaitExplained("parked", "parked")
	for _, id := range []string{"failed", "other"} {
		w.enqueue("x:fails", id)
		w.awaitExplained(id, "retry")
	}
	w.enqueue("x:refused", "refused")
	w.await("the refusal", func() bool { return s.listed()["refused"].Why == jobview.WhyRefused })
	stop()
	inspector := jobview.NewInspector(s.rdb)
	if got := s.run("retry", "--failed", "refused"); got.status != cli.Failed || !strings.Contains(got.stderr, `not failed: "refused"`) {
		t.Errorf("a job that waits is retried: %+v", got)
	}
	remove := func(state jobview.JobState, want int, ids ...string) {
		t.Helper()
		q := jobview.DeleteQuery{State: state}
		for _, id := range ids {
			q.Jobs = append(q.Jobs, jobview.JobID{Queue: "default", ID: id})
		}
		result, err := inspector.Delete(t.Context(), q)
		if err != nil || result.Deleted != want {
			t.Errorf("delete %v as %s: %+v, %v; want %d", ids, state, result, err, want)
		}
	}
	remove(jobview.Failed, 0, "refused", "parked")
	remove(jobview.Waiting, 0, "failed")
	remove(jobview.Waiting, 2, "refused", "parked", "failed", "first", "gone")
	remove(jobview.Failed, 1, "other")
	if jobs := s.listed(); len(jobs) != 1 || jobs["failed"].State != jobview.Failed {
		t.Errorf("left are %+v, want the failed one", jobs)
	}
}

// TestListsOfLargeJobs: a list of jobs does not read their payloads, and a page ends before it
// has read too much.
func TestListsOfLargeJobs(t *testing.T) {
	const jobs, size = 60, 1 << 20
	s := newSite(t)
	w := s.workers("")
	payload := []byte(`{"text":"` + strings.Repeat("x", size) + `"}`)
	for i := range jobs {
		_, err := w.queue.Enqueue(asynq.NewTask("x:large", payload), asynq.TaskID(fmt.Sprint("job", i)))
		s.check(err)
	}
	sent := func() int {
		info, err := s.rdb.InfoMap(t.Context(), "stats").Result()
		s.check(err)
		n, err := strconv.Atoi(info["Stats"]["total_net_output_bytes"])
		s.check(err)
		return n
	}
	before := sent()
	page, err := jobview.NewInspector(s.rdb).Jobs(t.Context(), jobview.JobQuery{})
	s.check(err)
	if got := sent() - before; got > size {
		t.Errorf("Redis has sent %d bytes for a page", got)
	}
	if n := len(page.Jobs); n == 0 || n == jobs || page.Next == "" {
		t.Errorf("a page of %d jobs of a megabyte", n)
	}
	if n := len(s.listed("--type", "x:large")); n != jobs {
		t.Errorf("%d jobs are listed, want %d", n, jobs)
	}
}

// TestRetryGoesOn: failed jobs are far behind others that wait. A retry that ends early says
// where it was, and another one goes on from there, to the end. Jobs that fail again meanwhile
// are skipped.
func TestRetryGoesOn(t *testing.T) {
	const parked, failed = 5000, 30
	s := newSite(t)
	w := s.workers("")
	w.enqueue("x", "first") // asynq knows the queue from then on
	s.check(s.rdb.Eval(t.Context(), `
local at = redis.call("TIME")[1] + 1000
for i = 1, ARGV[1] + ARGV[2] do
  local waits, id = i <= tonumber(ARGV[1]), string.format("job%06d", i)
  local msg = "\10\1x\26\9" .. id .. "\34\7default\40\25"
  redis.call("HSET", "asynq:{default}:t:" .. id, "state", "retry", "msg", msg)
  if waits then redis.call("HSET", "asynq:{default}:t:" .. id, "jt", "p 1 0 " .. at + i .. " 1 0 api") end
  redis.call("ZADD", "asynq:{default}:retry", at + i, id)
end
return 1`, nil, parked, failed).Err())
	rdb := redis.NewClient(&redis.Options{Addr: s.addr})
	t.Cleanup(func() { rdb.Close() })
	ended := &endsAfter{}
	rdb.AddHook(ended)
	inspector, q := jobview.NewInspector(rdb), jobview.RetryQuery{Failed: true}
	back, parts := 0, 1
	for ; ; parts++ {
		ctx, cancel := context.WithCancel(t.Context())
		ended.left, ended.end = 60, cancel
		result, err := inspector.Retry(ctx, q, nil)
		cancel()
		if back += result.Back; err == nil {
			break
		}
		if !errors.Is(err, context.Canceled) || result.Next == q.After || parts > 100 {
			t.Fatalf("part %d: %+v, %v", parts, result, err)
		}
		q.After = result.Next
	}
	if back != failed || parts == 1 {
		t.Errorf("%d are back in %d parts, want %d", back, parts, failed)
	}
	info, err := w.inspector.GetQueueInfo("default")
	if err != nil || info.Retry != parked || info.Pending != failed+1 {
		t.Errorf("%+v, %v", info, err)
	}
}

// endsAfter ends something after that many calls of a client.
type endsAfter struct {
	left int
	end  func()
}

func (e *endsAfter) count() {
	if e.left--; e.left == 0 {
		e.end()
	}
}

func (e *endsAfter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (e *endsAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		e.count()
		return next(ctx, cmd)
	}
}

func (e *endsAfter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		e.count()
		return next(ctx, cmds)
	}
}
