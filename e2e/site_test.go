package e2e

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/internal/strictapi"
	"github.com/jobthrottle/jobthrottle/internal/testcert"
	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

// The limit of the API that all tests call.
const (
	apiLimit    = 40
	apiInterval = time.Second
)

// site is a Redis and an API of a test's own, and a configuration for both.
type site struct {
	tb        testing.TB
	plan      plan
	api       *strictapi.API
	url       string // of the API
	redis     string // its address
	config    string // path of the configuration file
	env       []string
	inspector *asynq.Inspector
}

// plan is what differs between sites.
type plan struct {
	guard     time.Duration // of the fleet's limit
	perWorker int           // a limit of each worker beside it; zero is none
	hold      string        // of http:request
	waiting   int           // how many jobs may wait beside a worker's 20 slots; 0: the default
	opening   time.Duration // how long a connection to the API takes to open; each request then needs one
}

// newSite starts a Redis and an API.
func newSite(tb testing.TB, p plan) *site {
	tb.Helper()
	api := strictapi.New(apiLimit, apiInterval)
	if p.opening == 0 {
		server := httptest.NewServer(api)
		tb.Cleanup(server.Close)
		return siteFor(tb, p, api, server.URL)
	}
	// What takes long is the TLS handshake: a connection is there when that is done.
	server := httptest.NewUnstartedServer(api)
	server.Config.SetKeepAlivesEnabled(false)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // connections that a worker drops when it ends
	authority := testcert.New(tb)
	pair, err := tls.LoadX509KeyPair(authority.Issue("api", "127.0.0.1"))
	if err != nil {
		tb.Fatal(err)
	}
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		<-time.After(p.opening)
		return nil, nil // the server's own
	}}
	server.StartTLS()
	tb.Cleanup(server.Close)
	s := siteFor(tb, p, api, server.URL)
	s.env = []string{"SSL_CERT_FILE=" + authority.File}
	return s
}

func siteFor(tb testing.TB, p plan, api *strictapi.API, apiURL string) *site {
	tb.Helper()
	u, err := url.Parse(apiURL)
	if err != nil {
		tb.Fatal(err)
	}
	addr := redistest.Start(tb)
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	tb.Cleanup(func() { rdb.Close() })
	limits := fmt.Sprintf("api: { rate: %d/%v, guard: %v }", apiLimit, apiInterval, p.guard)
	names := "api"
	if p.perWorker > 0 {
		limits += fmt.Sprintf(", api-worker: { rate: %d/%v, guard: %v, type: per_client }", p.perWorker, apiInterval, p.guard)
		names += ", api-worker"
	}
	room := "" // the default
	if p.waiting > 0 {
		room = fmt.Sprintf(", max_waiting: %d", p.waiting)
	}
	config := filepath.Join(tb.TempDir(), "config.yaml")
	text := fmt.Sprintf(`
redis: { addrs: [%q] }
limits: { %s }
pools: [ { name: default, concurrency: 20%s } ]
jobs: { "http:request": { limits: [%s], hold: %s } }
http: { allow_hosts: [%q] }
`, addr, limits, room, names, p.hold, u.Host)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return &site{tb: tb, plan: p, api: api, url: apiURL, redis: addr, config: config, inspector: asynq.NewInspectorFromRedisClient(rdb)}
}

// jobName is the id of the i-th job line, and what the API knows it by.
func jobName(i int) string { return fmt.Sprintf("job-%d", i) }

// enqueue adds n job lines from a file, as a user does.
func (s *site) enqueue(n int) {
	s.tb.Helper()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, `{"type":"http:request","id":%q,"payload":{"method":"GET","url":"%s/?job=%s"}}`+"\n",
			jobName(i), s.url, jobName(i))
	}
	file := filepath.Join(s.tb.TempDir(), "jobs.ndjson")
	if err := os.WriteFile(file, []byte(lines.String()), 0o600); err != nil {
		s.tb.Fatal(err)
	}
	if got := runToEnd(s.tb, "enqueue", "--config", s.config, "--file", file); got.status != 0 {
		s.tb.Fatalf("enqueue: status %d\n%s%s", got.status, got.stdout, got.stderr)
	}
	if q := s.queue(); q.Pending != n {
		s.tb.Fatalf("%d of %d jobs pending", q.Pending, n)
	}
}

func (s *site) startWorker() *worker {
	s.tb.Helper()
	return startWorker(s.tb, s.config, s.env...)
}

// stop asks workers to drain, all at once, and fails the test unless each exits with 0.
func (s *site) stop(workers ...*worker) {
	s.tb.Helper()
	for _, w := range workers {
		w.terminate(s.tb)
	}
	for _, w := range workers {
		if status := w.wait(s.tb); status != 0 {
			s.tb.Errorf("a worker that was asked to stop exited with %d, want 0", status)
		}
	}
}

// queue is what asynq says of the jobs.
func (s *site) queue() *asynq.QueueInfo {
	s.tb.Helper()
	info, err := s.inspector.GetQueueInfo("default")
	if err != nil {
		s.tb.Fatal(err)
	}
	return info
}

// state says how far the jobs have come.
func (s *site) state() string {
	q, r := s.queue(), s.api.Report()
	return fmt.Sprintf("%d pending, %d active, %d to retry, %d archived, %d done; %d requests, %d refused",
		q.Pending, q.Active, q.Retry, q.Archived, q.Completed, r.Requests, r.Refused)
}

// awaitArrivals waits until n requests have reached the API.
func (s *site) awaitArrivals(n int, within time.Duration) {
	s.tb.Helper()
	testkit.Eventually(s.tb, within, fmt.Sprintf("%d arrivals", n), func() bool { return s.api.Report().Requests >= n }, s.state)
}

// awaitDone waits until asynq has n jobs done.
func (s *site) awaitDone(n int, within time.Duration) {
	s.tb.Helper()
	testkit.Eventually(s.tb, within, fmt.Sprintf("%d jobs done", n), func() bool { return s.queue().Completed >= n }, s.state)
}

// checkLimit fails the test if the API saw more than its limit.
func (s *site) checkLimit() {
	s.tb.Helper()
	if r := s.api.Report(); r.Peak > apiLimit || r.Refused > 0 {
		s.tb.Errorf("%d requests within %v, %d refused; the limit is %d", r.Peak, apiInterval, r.Refused, apiLimit)
	}
}

// checkOnceEach fails the test unless each of n jobs arrived, and none twice.
func (s *site) checkOnceEach(n int) {
	s.tb.Helper()
	jobs := s.api.Report().Jobs
	for i := range n {
		if got := jobs[jobName(i)]; got != 1 {
			s.tb.Errorf("%s arrived %d times, want once", jobName(i), got)
		}
	}
	if len(jobs) != n {
		s.tb.Errorf("%d different jobs arrived, want %d", len(jobs), n)
	}
}

// ideal is the least time the limit leaves between the first arrival and the n-th.
func (s *site) ideal(n int) time.Duration {
	return time.Duration((n+apiLimit-1)/apiLimit-1) * (apiInterval + s.plan.guard)
}
