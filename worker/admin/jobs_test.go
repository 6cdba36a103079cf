package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// archive has n jobs of a type archived.
func (s *site) archive(n int, taskType, queue string) {
	s.tb.Helper()
	client, inspector := asynq.NewClientFromRedisClient(s.rdb), asynq.NewInspectorFromRedisClient(s.rdb)
	if err := inspector.PauseQueue(queue); err != nil { // a worker may serve it
		s.tb.Fatal(err)
	}
	for i := range n {
		payload := fmt.Sprintf(`{"n": %d, "account": "acme", "headers": {"Authorization": "Bearer s3cr3t-s3cr3t"}}`, i)
		if _, err := client.Enqueue(asynq.NewTask(taskType, []byte(payload)), asynq.Queue(queue), asynq.TaskID(fmt.Sprintf("%s-%04d", taskType, i)), asynq.Unique(time.Hour)); err != nil {
			s.tb.Fatal(err)
		}
	}
	if archived, err := inspector.ArchiveAllPendingTasks(queue); err != nil || archived < n {
		s.tb.Fatalf("archived %d of %d: %v", archived, n, err)
	}
	if err := inspector.UnpauseQueue(queue); err != nil {
		s.tb.Fatal(err)
	}
}

// read asks the admin address for JSON.
func read[T any](s *site, path string) (v T) {
	s.tb.Helper()
	status, body := s.ask(asked{method: http.MethodGet, path: path})
	if status != http.StatusOK {
		s.tb.Fatalf("%s: %d %s", path, status, body)
	}
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		s.tb.Fatalf("%s: %v in %.200s", path, err, body)
	}
	return v
}

type jobsPage struct {
	Jobs []jobview.Job `json:"jobs"`
	Next string        `json:"next"`
}

// list reads all pages of a list.
func (s *site) list(query string) (jobs []jobview.Job) {
	s.tb.Helper()
	after := ""
	for {
		page := read[jobsPage](s, "/api/jobs?"+query+"&after="+after)
		if len(page.Jobs) > jobview.MaxJobs {
			s.tb.Fatalf("a page of %d jobs", len(page.Jobs))
		}
		jobs = append(jobs, page.Jobs...)
		if after = page.Next; after == "" {
			return jobs
		}
	}
}

// change sends a change, until there is no more to do, and returns how many jobs it concerned.
func (s *site) change(path, body string) (done int) {
	s.tb.Helper()
	given := body
	for {
		status, reply := s.ask(asked{path: path, body: body})
		var c struct {
			Done  int    `json:"done"`
			More  bool   `json:"more"`
			After string `json:"after"`
		}
		if err := json.Unmarshal([]byte(reply), &c); status != http.StatusOK || err != nil {
			s.tb.Fatalf("%s %s: %d %s %v", path, body, status, reply, err)
		}
		if done += c.Done; !c.More {
			return done
		}
		body = strings.TrimSuffix(given, "}") + fmt.Sprintf(`, "after": %q}`, c.After)
	}
}

func (s *site) queueInfo(name string) *asynq.QueueInfo {
	s.tb.Helper()
	q, err := asynq.NewInspectorFromRedisClient(s.rdb).GetQueueInfo(name)
	if err != nil {
		s.tb.Fatal(err)
	}
	return q
}

// TestArchivedJobs: archived jobs are listed, all of them and once, also by type; retrying
// and deleting concerns what it says, and loses nothing.
func TestArchivedJobs(t *testing.T) {
	const mails, others = 1150, 40
	s := newSite(t, 1, twoLimits, token)
	s.archive(mails, "mail:send", "idle")
	s.archive(others, "sms:send", "idle")
	seen := map[string]bool{}
	for _, j := range s.list("state=archived") {
		if seen[j.ID] || j.Queue != "idle" || j.State != jobview.Archived {
			t.Errorf("%+v, seen before: %v", j, seen[j.ID])
		}
		seen[j.ID] = true
	}
	if len(seen) != mails+others {
		t.Fatalf("%d archived jobs are listed, want %d", len(seen), mails+others)
	}
	if n := len(s.list("state=archived&type=sms:*")); n != others {
		t.Errorf("%d of the type, want %d", n, others)
	}
	detail := read[jobview.Detail](s, "/api/job?task=mail:send-0001&queue=idle")
	if text := fmt.Sprint(detail); strings.Contains(text, "Bearer") || !strings.Contains(detail.Payload, "acme") || !strings.Contains(detail.Payload, "(hidden)") {
		t.Errorf("%s", text)
	}
	for _, wrong := range []struct {
		body string
		edit func(*http.Request)
		want int
	}{
		{`{"all": true, "state": "archived"}`, header("Authorization", "Bearer wrong"), 401},
		{`{"all": true, "state": "archived"}`, header("Sec-Fetch-Site", "cross-site"), 403},
		{`{"all": true}`, nil, 400},
		{`{"state": "archived"}`, nil, 400},
		{`{"all": true, "state": "archived", "jobs": [{"queue": "idle", "id": "x"}]}`, nil, 400},
		{`{"all": true, "state": "waiting"}`, nil, 400},
		{`{"all": true, "state": "archived", "after": "nowhere"}`, nil, 400},
		{`{"jobs": [{"queue": "idle", "id": "x"}], "state": "archived", "after": "nowhere"}`, nil, 400},
	} {
		if status, body := s.ask(asked{path: "/api/jobs/retry", body: wrong.body, edit: wrong.edit}); status != wrong.want {
			t.Errorf("%s: %d %s, want %d", wrong.body, status, body, wrong.want)
		}
	}
	if q := s.queueInfo("idle"); q.Archived != mails+others {
		t.Fatalf("what was refused has changed the queue: %+v", q)
	}
	if n := s.change("/api/jobs/retry", `{"jobs": [{"queue": "idle", "id": "mail:send-0003"}, {"queue": "idle", "id": "gone"}], "state": "archived"}`); n != 1 {
		t.Errorf("%d are back, want 1", n)
	}
	if n := s.change("/api/jobs/delete", `{"jobs": [{"queue": "idle", "id": "mail:send-0003"}, {"queue": "idle", "id": "mail:send-0004"}], "state": "archived"}`); n != 1 {
		t.Errorf("%d are deleted, want the one that is archived still", n)
	}
	if n := s.change("/api/jobs/delete", `{"all": true, "state": "archived", "type": "sms:send"}`); n != others {
		t.Errorf("%d are deleted, want %d", n, others)
	}
	if n := s.change("/api/jobs/retry", `{"all": true, "state": "archived"}`); n != mails-2 {
		t.Errorf("%d are back, want %d", n, mails-2)
	}
	if q := s.queueInfo("idle"); q.Archived != 0 || q.Pending != mails-1 {
		t.Errorf("%d archived and %d pending, want 0 and %d", q.Archived, q.Pending, mails-1)
	}
	// The lock of a deleted job is gone with it.
	if _, err := asynq.NewClientFromRedisClient(s.rdb).Enqueue(asynq.NewTask("sms:send", []byte(`{"n": 5, "account": "acme", "headers": {"Authorization": "Bearer s3cr3t-s3cr3t"}}`)), asynq.Queue("idle"), asynq.Unique(time.Hour)); err != nil {
		t.Errorf("enqueue what was deleted: %v", err)
	}
}

// TestArchivedComeBack: an API that answers 404 archives all jobs. Once it is mended, the page's
// "retry all" brings them back: each runs once more, none is lost, within a minute. The size of a
// nightly run is the largest that asynq keeps of one queue, nearly.
func TestArchivedComeBack(t *testing.T) {
	jobs := 300
	if os.Getenv("JOBTHROTTLE_NIGHTLY") != "" {
		jobs = 9000
	}
	var broken atomic.Bool
	broken.Store(true)
	var served sync.Map
	var twice, n atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if broken.Load() {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if _, before := served.LoadOrStore(r.URL.Path, true); before {
			twice.Add(1)
		}
		n.Add(1)
	}))
	t.Cleanup(api.Close)
	s := newSite(t, 1, fmt.Sprintf(`
limits: { api: { rate: 1000/1s } }
pools: [ { name: default, concurrency: 40 } ]
jobs: { "http:request": { limits: [api] } }
http: { allow_hosts: [%q] }
`, api.Listener.Addr().String()), token)
	client := asynq.NewClientFromRedisClient(s.rdb)
	for i := range jobs {
		if _, err := client.Enqueue(asynq.NewTask("http:request", fmt.Appendf(nil, `{"url":"%s/%d"}`, api.URL, i)), asynq.TaskID(fmt.Sprint("job", i))); err != nil {
			t.Fatal(err)
		}
	}
	s.await(2*time.Minute, func() (bool, string) {
		archived := s.queueInfo("default").Archived
		return archived == jobs, fmt.Sprintf("%d archived", archived)
	})
	broken.Store(false)
	began := time.Now()
	if back := s.change("/api/jobs/retry", `{"all": true, "state": "archived"}`); back != jobs {
		t.Errorf("%d are back, want %d", back, jobs)
	}
	s.await(time.Minute, func() (bool, string) { return n.Load() >= int64(jobs), fmt.Sprintf("%d of %d served", n.Load(), jobs) })
	t.Logf("%d jobs done %v after retry began", jobs, time.Since(began).Round(time.Millisecond))
	s.await(patience, func() (bool, string) {
		q := s.queueInfo("default")
		return q.Size == 0, fmt.Sprintf("%+v", q)
	})
	if twice.Load() > 0 || n.Load() != int64(jobs) {
		t.Errorf("%d requests for %d jobs, %d of them again", n.Load(), jobs, twice.Load())
	}
}

// TestWaitingJobs: jobs that wait for a value of a key are found by it, and are gone
// from their line when they are deleted.
func TestWaitingJobs(t *testing.T) {
	s := newSite(t, 1, stuck, token)
	s.awaitCreated("api")
	s.enqueue(12, "default", "acme")
	s.enqueue(9, "default", "globex")
	s.await(patience, func() (bool, string) {
		n := len(s.list("state=waiting"))
		return n == 21-14 && s.queueInfo("default").Pending == 0, fmt.Sprintf("%d jobs wait", n)
	})
	acme := s.list("state=waiting&value=acme")
	if len(acme) != 5 || acme[0].Limit != "account:acme" || acme[0].Why != jobview.WhyLimit {
		t.Fatalf("%d jobs wait for acme: %+v", len(acme), acme)
	}
	if n := s.change("/api/jobs/delete", fmt.Sprintf(`{"jobs": [{"queue": "default", "id": %q}], "state": "waiting"}`, acme[0].ID)); n != 1 {
		t.Errorf("%d are deleted", n)
	}
	if left := s.list("state=waiting&value=acme"); len(left) != 4 || left[0].ID != acme[1].ID {
		t.Errorf("%+v", left)
	}
	lines, err := s.first.Inspector().LinesOf(t.Context(), "account:acme")
	if err != nil || lines[0].Parked != 4 {
		t.Errorf("%+v, %v", lines, err)
	}
	// Archived jobs wait for no limit, and are found by it all the same.
	if err := asynq.NewInspectorFromRedisClient(s.rdb).ArchiveTask("default", acme[4].ID); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []string{"account", "account:acme", "api"} {
		if found := s.list("state=archived&limit=" + limit); len(found) != 1 || found[0].ID != acme[4].ID {
			t.Errorf("archived of %s: %+v", limit, found)
		}
	}
	if found := s.list("state=archived&limit=account:globex"); len(found) > 0 {
		t.Errorf("archived of another value: %+v", found)
	}
}

// TestJobsOfAValue: failed and archived jobs are found by the value of a key, among others
// and with large payloads; jobs that wait are not among them.
func TestJobsOfAValue(t *testing.T) {
	s := newSite(t, 1, stuck, token)
	s.awaitCreated("api")
	s.enqueue(12, "default", "acme")
	s.await(patience, func() (bool, string) {
		n := len(s.list("state=waiting&value=acme"))
		return n == 5 && s.queueInfo("default").Pending == 0, fmt.Sprintf("%d jobs wait", n)
	})
	client := asynq.NewClientFromRedisClient(s.rdb)
	accounts := []string{"acme", "globex", "a:b"}
	const each = 30
	for i := range each {
		for _, account := range accounts {
			payload := fmt.Sprintf(`{"text": %q, "account": %q}`, strings.Repeat("x", 100_000), account)
			if _, err := client.Enqueue(asynq.NewTask("http:request", []byte(payload)), asynq.Queue("idle"), asynq.TaskID(fmt.Sprint(account, i))); err != nil {
				t.Fatal(err)
			}
		}
	}
	inspector := asynq.NewInspectorFromRedisClient(s.rdb)
	if n, err := inspector.ArchiveAllPendingTasks("idle"); err != nil || n != each*len(accounts) {
		t.Fatal(n, err)
	}
	for _, account := range accounts {
		for query, want := range map[string]int{
			"state=archived": each, "state=archived&limit=account": each, "state=archived&limit=api": 0, "state=archived&type=mail:*": 0, "state=failed": 0,
		} {
			jobs := s.list(query + "&value=" + url.QueryEscape(account))
			if len(jobs) != want {
				t.Errorf("%s of %s: %d jobs, want %d", query, account, len(jobs), want)
			}
			for _, j := range jobs {
				if j.State != jobview.Archived || strings.TrimRight(j.ID, "0123456789") != account {
					t.Errorf("%s of %s lists %+v", query, account, j)
				}
			}
		}
	}
}

// TestWaitingJobsOfAValue: jobs that wait are found by the value of a key, whether they wait for permits, in the lines of
// tenants, or for slots.
func TestWaitingJobsOfAValue(t *testing.T) {
	for what, limit := range map[string]string{
		"shared":    "rate: 1/24h, share: payload.method",
		"in flight": "in_flight: 1",
	} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t, 1, fmt.Sprintf(`
limits: { account: { %s, key: payload.account } }
pools: [ { name: default, concurrency: 8 } ]
jobs: { "http:request": { limits: [account], hold: 0 } }
http: { allow_hosts: ["$API"] }
`, limit), token)
			c, err := throttle.New(s.rdb, throttle.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			for account, n := range map[string]int{"acme": 3, "globex": 2} {
				if what == "in flight" {
					f, err := c.InFlight("account:"+account, throttle.Slots{Limit: 1})
					if err != nil {
						t.Fatal(err)
					}
					if _, err := f.Acquire(t.Context(), "somebody"); err != nil {
						t.Fatal(err)
					}
				} else {
					n++ // one of them runs
				}
				s.enqueue(n, "default", account)
			}
			for query, want := range map[string]int{
				"value=acme&state=waiting": 3, "value=globex": 2, "value=acme&limit=account": 3, "value=acme&limit=other": 0, "value=nobody": 0,
			} {
				s.await(patience, func() (bool, string) {
					found := s.list(query)
					return len(found) == want, fmt.Sprintf("%s: %+v, want %d jobs", query, found, want)
				})
			}
		})
	}
}

// TestQueuesPause: a queue is paused and unpaused, by who has the token.
func TestQueuesPause(t *testing.T) {
	s := newSite(t, 1, twoLimits, token)
	s.enqueue(1, "default", "acme")
	for _, step := range []struct {
		path   string
		edit   func(*http.Request)
		want   int
		paused bool
	}{
		{"/api/queues/default/pause", header("Authorization", ""), 401, false},
		{"/api/queues/default/pause", nil, 200, true},
		{"/api/queues/default/pause", nil, 200, true},
		{"/api/queues/nobodys/pause", nil, 404, true},
		{"/api/queues/default/unpause", nil, 200, false},
		{"/api/queues/default/unpause", nil, 200, false},
	} {
		if status, body := s.ask(asked{path: step.path, body: "{}", edit: step.edit}); status != step.want {
			t.Errorf("%s: %d %s, want %d", step.path, status, body, step.want)
		}
		if paused := s.queueInfo("default").Paused; paused != step.paused {
			t.Errorf("%s: paused %v", step.path, paused)
		}
	}
}

// TestFleetOnThePage: the workers are there, and what they did.
func TestFleetOnThePage(t *testing.T) {
	s := newSite(t, 2, twoLimits, "")
	s.enqueue(30, "default", "acme")
	s.awaitRequests(30)
	type reply struct {
		Workers []struct {
			ID    string   `json:"id"`
			Types []string `json:"types"`
			Pools []struct{ Slots int }
		}
		Limits map[string][][5]int64
	}
	s.await(patience, func() (bool, string) {
		past, fleet := read[reply](s, "/api/past"), read[reply](s, "/api/workers")
		started := int64(0)
		for _, span := range past.Limits["api"] {
			started += span[0]
		}
		return started == 30 && len(fleet.Workers) == 2 && len(fleet.Workers[0].Types) == 1 && fleet.Workers[0].Pools[0].Slots == 20,
			fmt.Sprintf("%d started, workers %+v", started, fleet.Workers)
	})
}
