package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
)

// listed runs jobs --json, which has to succeed, and returns what it lists by id.
func (s *site) listed(args ...string) map[string]jobview.Job {
	s.Helper()
	jobs := map[string]jobview.Job{}
	for line := range strings.Lines(s.done(append([]string{"jobs", "--json", "--max", "0"}, args...)...)) {
		j := decode[jobview.Job](s, line)
		if _, twice := jobs[j.ID]; twice {
			s.Errorf("%s is listed twice", j.ID)
		}
		jobs[j.ID] = j
	}
	return jobs
}

// TestJobs: what a fleet has waiting, failed and archived is listed with its reason, and by what the flags say.
func TestJobs(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "600")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	t.Cleanup(api.Close)
	s := newSite(t)
	w := s.workers(fmt.Sprintf(`
limits: { api: { rate: 1/1h }, slow: { rate: 1/5m }, refusing: { rate: 10/1s } }
pools: [ { name: default, concurrency: 4, queues: { default: 1, other: 1 } } ]
jobs:
  "x:api": { limits: [api], hold: 0 }
  "x:slow": { limits: [slow], hold: 1h }
  "http:request": { limits: [refusing] }
http: { allow_hosts: [%q] }
`, api.Listener.Addr().String()))
	w.start(func(_ context.Context, task *asynq.Task) error {
		switch task.Type() {
		case "x:fails":
			return errors.New("the disk is full")
		case "x:gone":
			return fmt.Errorf("no such order: %w", asynq.SkipRetry)
		}
		return nil
	})
	if got := s.run("jobs"); got.status != cli.Done || got.stdout != "" || !strings.Contains(got.stderr, "no jobs wait, failed or are archived in Redis at ") {
		t.Errorf("before any job: %+v", got)
	}
	w.enqueue("x:api", "first")
	w.awaitStarts(1)
	w.enqueue("x:slow", "slow1")
	w.awaitStarts(2)
	for _, id := range []string{"api1", "api2", "api3"} {
		w.enqueue("x:api", id)
		w.awaitExplained(id, "parked")
	}
	w.enqueue("x:slow", "room")
	w.enqueue("x:fails", "failed")
	w.enqueue("x:gone", "archived1")
	w.enqueue("x:gone", "archived2")
	w.enqueue("nobody:knows", "unknown")
	_, err := w.queue.Enqueue(asynq.NewTask("http:request", []byte(`{"url":"http://elsewhere.example/"}`)), asynq.TaskID("host"))
	s.check(err)
	_, err = w.queue.Enqueue(asynq.NewTask("http:request", fmt.Appendf(nil, `{"url":%q}`, api.URL)), asynq.TaskID("refused"))
	s.check(err)
	var jobs map[string]jobview.Job
	w.await("all are where they belong", func() bool {
		jobs = s.listed()
		return jobs["failed"].State == jobview.Failed && jobs["archived1"].State == jobview.Archived && jobs["archived2"].State == jobview.Archived &&
			jobs["unknown"].Why == "no_handler" && jobs["host"].Why == "host_not_allowed" && jobs["room"].Why == jobview.WhyWorker &&
			(jobs["refused"].Why == jobview.WhyPaused || jobs["refused"].Why == jobview.WhyRefused)
	})
	for i, id := range []string{"api1", "api2", "api3"} {
		j := jobs[id]
		if j.State != jobview.Waiting || j.Why != jobview.WhyLimit || j.Limit != "api" || j.Cost != 1 || j.Queue != "default" || j.Type != "x:api" {
			t.Errorf("%s: %+v", id, j)
		}
		if in := time.Until(j.Next); in < time.Duration(i)*time.Hour || in > time.Duration(i+1)*time.Hour+time.Minute {
			t.Errorf("%s comes in %v", id, in)
		}
		if waits := time.Since(j.Since); waits < 0 || waits > time.Minute {
			t.Errorf("%s waits for %v", id, waits)
		}
	}
	if j := jobs["failed"]; j.Error != "the disk is full" || j.Retried != 1 || !j.Next.After(time.Now()) || j.MaxRetry != 25 {
		t.Errorf("%+v", j)
	}
	if j := jobs["archived1"]; !strings.HasPrefix(j.Error, "no such order") || j.Since.IsZero() || !j.Next.IsZero() {
		t.Errorf("%+v", j)
	}
	for _, tt := range []struct {
		args []string
		want string // ids
	}{
		{[]string{"--limit", "api"}, "api1 api2 api3"},
		{[]string{"--limit", "slow", "--state", "waiting"}, ""},
		{[]string{"--state", "failed"}, "failed"},
		{[]string{"--state", "archived"}, "archived1 archived2"},
		{[]string{"--state", "archived", "--type", "x:*"}, "archived1 archived2"},
		{[]string{"--state", "archived", "--type", "x:"}, "archived1 archived2"},
		{[]string{"--state", "archived", "--type", "x"}, ""},
		{[]string{"--state", "archived", "--queue", "default"}, "archived1 archived2"},
		{[]string{"--type", "nobody:knows"}, "unknown"},
		{[]string{"--type", "http:request"}, "host refused"},
	} {
		w.await(fmt.Sprintf("%q are the jobs of %q", tt.want, tt.args), func() bool { // blocked ones are tried again now and then
			ids := slices.Sorted(maps.Keys(s.listed(tt.args...)))
			return strings.Join(ids, " ") == tt.want
		})
	}
	text := s.done("jobs")
	for _, want := range []string{"STATE", "limit api\n", "retry 1 of 25: the disk is full", "no such order", "no_handler: ", "host_not_allowed: ", "waits in a worker", "never"} {
		if !strings.Contains(text, want) {
			t.Errorf("it does not say %q:\n%s", want, text)
		}
	}
	s.check(w.inspector.PauseQueue("default"))
	w.enqueue("x:api", "held")
	if j := s.listed()["held"]; j.Why != jobview.WhyQueue {
		t.Errorf("of a paused queue: %+v", j)
	}
	s.done("pause", "api", "10m")
	if j := s.listed("--limit", "api")["api1"]; j.Why != jobview.WhyPaused {
		t.Errorf("of a paused limit: %+v", j)
	}
}

// TestJobsOfAKeyedLimit: its name lists what waits for all values.
func TestJobsOfAKeyedLimit(t *testing.T) {
	s := newSite(t)
	w := s.workers(`
limits: { account: { rate: 1/1h, key: header.account } }
jobs: { "x:account": { limits: [account], hold: 0 } }
`)
	file := configFile(t, "limits: { account: { rate: 1/1h, key: header.account }, slots: { in_flight: 3 } }\njobs: { 'x:account': { limits: [account] }, y: { limits: [slots] } }\n")
	w.start(nil)
	for _, account := range []string{"acme", "umbrella"} {
		for i := range 3 {
			id := fmt.Sprint(account, i)
			_, err := w.queue.Enqueue(asynq.NewTaskWithHeaders("x:account", nil, map[string]string{"account": account}), asynq.TaskID(id))
			s.check(err)
			if i > 0 {
				w.awaitExplained(id, "parked")
			} else {
				w.await(id+" is done", func() bool {
					_, err := w.inspector.GetTaskInfo("default", id)
					return errors.Is(err, asynq.ErrTaskNotFound)
				})
			}
		}
	}
	for limit, want := range map[string]int{"account": 4, "account:acme": 2, "account:umbrella": 2} {
		if got := s.listed("--limit", limit); len(got) != want {
			t.Errorf("of %s: %d jobs, want %d: %v", limit, len(got), want, got)
		}
	}
	s.fails(cli.Usage, []string{"jobs", "--limit", "acount", "--state", "failed", "--config", file}, []string{`no limit "acount"`, `did you mean "account"`})
	s.check(w.inspector.ArchiveTask("default", "acme1"))
	w.enqueue("y", "other")
	w.await("it is archived", func() bool {
		return w.inspector.ArchiveTask("default", "other") == nil || s.listed()["other"].State == jobview.Archived
	})
	for limit, want := range map[string]string{"account": "acme1", "account:acme": "acme1", "account:umbrella": "", "slots": "other"} {
		ids := slices.Sorted(maps.Keys(s.listed("--limit", limit, "--state", "archived", "--config", file)))
		if strings.Join(ids, " ") != want {
			t.Errorf("archived ones of %s: %q, want %q", limit, ids, want)
		}
	}
}

// TestJobsOfLimitsNamedAlike: the configuration tells the values of a limit from other limits whose names begin with its name.
func TestJobsOfLimitsNamedAlike(t *testing.T) {
	s := newSite(t)
	w := s.workers(`
limits: { api: { rate: 1/1h }, "api:eu": { rate: 1/1h }, account: { rate: 1/1h, key: header.account } }
jobs: { "x:api": { limits: [api], hold: 0 }, "x:eu": { limits: ["api:eu"], hold: 0 }, "x:account": { limits: [account], hold: 0 } }
`)
	file := configFile(t, w.yaml)
	without := configFile(t, "redis: { addrs: [\""+s.addr+"\"] }\nlimits: { \"api:eu\": { rate: 1/1h } }\njobs: { \"x:eu\": { limits: [\"api:eu\"] } }\n")
	w.start(nil)
	for n, typ := range []string{"x:api", "x:eu", "x:account"} {
		for _, id := range []string{" first", " waits"} {
			_, err := w.queue.Enqueue(asynq.NewTaskWithHeaders(typ, nil, map[string]string{"account": "acme"}), asynq.TaskID(typ+id))
			s.check(err)
			w.awaitStarts(n + 1)
		}
		w.awaitExplained(typ+" waits", "parked")
	}
	for args, want := range map[string][]string{
		"--limit api":                              {"x:api waits", "x:eu waits"}, // nobody knows better
		"--limit api --config FILE":                {"x:api waits"},
		"--limit api --config WITHOUT":             {"x:api waits"}, // api:eu is a limit of its own
		"--limit api:eu --config FILE":             {"x:eu waits"},
		"--limit account --config FILE":            {"x:account waits"},
		"--limit account:acme --config FILE":       {"x:account waits"},
		"--limit account --state waiting":          {"x:account waits"},
		"--limit api --state failed --config FILE": nil,
	} {
		given := strings.Fields(strings.NewReplacer("FILE", file, "WITHOUT", without).Replace(args))
		if ids := slices.Sorted(maps.Keys(s.listed(given...))); !slices.Equal(ids, want) {
			t.Errorf("%s: %q, want %q", args, ids, want)
		}
	}
}

// TestJobsGoOn: pages go on where the last one ended, and have all jobs together once.
func TestJobsGoOn(t *testing.T) {
	s := newSite(t)
	w := s.workers("")
	const jobs = 1234
	for i := range jobs {
		w.enqueue("x", fmt.Sprint("job", i))
	}
	for i := range 700 {
		s.check(w.inspector.ArchiveTask("default", fmt.Sprint("job", i)))
	}
	seen := map[string]bool{}
	after, pages := []string{}, 0
	cursor := regexp.MustCompile(`--after (\S+),`)
	for {
		got := s.run(append([]string{"jobs", "--json"}, after...)...)
		if got.status != cli.Done {
			t.Fatalf("%+v", got)
		}
		pages++
		for line := range strings.Lines(got.stdout) {
			j := decode[jobview.Job](t, line)
			if seen[j.ID] {
				t.Errorf("%s twice", j.ID)
			}
			seen[j.ID] = true
		}
		m := cursor.FindStringSubmatch(got.stderr)
		if m == nil {
			break
		}
		after = []string{"--after", m[1]}
	}
	if len(seen) != jobs || pages != 13 {
		t.Errorf("%d jobs on %d pages, want %d on 13", len(seen), pages, jobs)
	}
	if all := s.listed(); len(all) != jobs {
		t.Errorf("--max 0 lists %d", len(all))
	}
	s.fails(cli.Usage, []string{"jobs", "--after", "there"}, []string{`--after "there"`, "a list of jobs ended with"})
}

// TestJobsMisspelt: each error says what is meant, and no misspelt name gives an empty list.
func TestJobsMisspelt(t *testing.T) {
	s := newSite(t)
	w := s.workers("")
	s.limiter("stripe", perHour(1), 0)
	w.enqueue("x", "job")
	for _, tt := range []struct {
		status int
		args   []string
		want   []string
	}{
		{cli.Usage, []string{"jobs", "--state", "archvied"}, []string{`"archvied"`, `did you mean "archived"`}},
		{cli.Usage, []string{"jobs", "--state", "waiting", "x"}, []string{`"x"`, "jobs --help"}},
		{cli.Usage, []string{"jobs", "--limit", "stripe", "--state", "failed"}, []string{"--limit", "give --config with the file of the workers", "--type"}},
		{cli.Usage, []string{"jobs", "--max", "-1"}, []string{"--max -1"}},
		{cli.Failed, []string{"jobs", "--limit", "strpe"}, []string{`"strpe"`, `did you mean "stripe"`}},
		{cli.Failed, []string{"jobs", "--queue", "defualt"}, []string{`"defualt"`, `did you mean "default"`}},
		{cli.Failed, []string{"retry", "--archived", "--queue", "defualt"}, []string{`"defualt"`, `did you mean "default"`}},
		{cli.Usage, []string{"retry"}, []string{"--archived", "--help"}},
		{cli.Usage, []string{"retry", "--archived", ""}, []string{"empty"}},
		{cli.Failed, []string{"retry", "jbo"}, []string{`"jbo"`, "explain"}},
		{cli.Failed, []string{"retry", "--archived", "job"}, []string{`"job"`, "not archived", "explain"}},
	} {
		s.fails(tt.status, tt.args, tt.want)
	}
}

// TestJobsOfALargeFleet: 100,000 jobs are listed all, and a page of them at once.
func TestJobsOfALargeFleet(t *testing.T) {
	jobs := 5000
	if nightly() {
		jobs = 100_000
	}
	s := newSite(t)
	w := s.workers("")
	var wg sync.WaitGroup
	for part := range 20 {
		wg.Go(func() {
			for i := range jobs / 20 {
				if _, err := w.queue.Enqueue(asynq.NewTask("x", nil), asynq.TaskID(fmt.Sprintf("job%d-%d", part, i))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	began := time.Now()
	first := s.done("jobs", "--json")
	page := time.Since(began)
	all := len(s.listed())
	t.Logf("%d jobs: a page in %v, all in %v", jobs, page, time.Since(began)-page)
	if n := strings.Count(first, "\n"); n != jobsAtOnce || all != jobs {
		t.Errorf("a page of %d, all are %d: want %d and %d", n, all, jobsAtOnce, jobs)
	}
}

// TestJobsOfALimitInFlight: who waits for a slot is listed by the limit, and by one value of its key.
func TestJobsOfALimitInFlight(t *testing.T) {
	s := newSite(t)
	w := s.workers(`
limits: { crm: { in_flight: 1 }, order: { in_flight: 1, key: header.customer } }
pools: [ { name: default, concurrency: 3, max_waiting: 1 } ]
jobs: { "x:crm": { limits: [crm], hold: 0 }, "x:order": { limits: [order], hold: 0 } }
`)
	goOn := make(chan struct{})
	w.start(func(ctx context.Context, _ *asynq.Task) error {
		select {
		case <-goOn:
		case <-ctx.Done():
		}
		return nil
	})
	t.Cleanup(func() { close(goOn) })
	enqueue := func(typ, id, customer string) {
		_, err := w.queue.Enqueue(asynq.NewTaskWithHeaders(typ, nil, map[string]string{"customer": customer}), asynq.TaskID(id))
		s.check(err)
	}
	enqueue("x:crm", "first", "")
	enqueue("x:order", "second", "acme")
	w.awaitStarts(2)
	s.done("jobs", "--limit", "order") // no job waits yet, but the limit is there
	enqueue("x:crm", "crm1", "")
	enqueue("x:crm", "crm2", "")
	enqueue("x:order", "acme1", "acme")
	enqueue("x:order", "acme2", "acme")
	for limit, ids := range map[string][]string{"crm": {"crm1", "crm2"}, "order": {"acme1", "acme2"}, "order:acme": {"acme1", "acme2"}} {
		var got []string
		w.await(fmt.Sprint(limit, " has ", ids), func() bool {
			got = slices.Sorted(maps.Keys(s.listed("--limit", limit)))
			return len(got) >= len(ids)
		})
		if !slices.Equal(got, ids) {
			t.Errorf("%s: %v wait, want %v", limit, got, ids)
		}
	}
}
