package asynqlimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

const adminToken = "a token of some length"

// shown is a server whose program serves its page below a path, beside its own, and has its
// metrics in a registry of its own.
type shown struct {
	t        *testing.T
	url      string
	registry *prometheus.Registry
}

func newShown(t *testing.T, limits *asynqlimit.Limits) *shown {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/limits/", http.StripPrefix("/limits", limits.Admin()))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	s := &shown{t: t, url: server.URL + "/limits", registry: prometheus.NewPedanticRegistry()}
	s.registry.MustRegister(limits.Collector())
	return s
}

// ask sends a request with these headers, given as alternating names and values.
func (s *shown) ask(method, path, body string, headers ...string) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for pair := range slices.Chunk(headers, 2) {
		if pair[0] == "Host" {
			r.Host = pair[1]
		}
		r.Header.Set(pair[0], pair[1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func (s *shown) get(path string, headers ...string) (int, string) {
	s.t.Helper()
	return s.ask(http.MethodGet, path, "", headers...)
}

// metric returns the sample of a metric with these labels, given as alternating names and values;
// for a histogram, the number of observations. It returns -1 if there is none.
func (s *shown) metric(name string, labels ...string) float64 {
	s.t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if hasLabels(m, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return -1
}

func hasLabels(m *dto.Metric, labels []string) bool {
	for pair := range slices.Chunk(labels, 2) {
		if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == pair[0] && l.GetValue() == pair[1] }) {
			return false
		}
	}
	return true
}

// TestShown: an asynq server that somebody already runs has the metrics and the page, which
// reads, explains, and changes only with the token.
func TestShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var page *shown
	s.serve(member{
		yaml: `
limits: { api: { rate: 2/24h }, tenant: { rate: 100/1s, key: payload.tenant } }
jobs: { x: { limits: [api, tenant] } }
admin: { token: "` + adminToken + `" }
`,
		asynq: asynq.Config{Queues: map[string]int{"mail": 2, "default": 1}},
		made:  func(l *asynqlimit.Limits) { page = newShown(t, l) },
	})
	s.await(10*time.Second, func() (bool, string) {
		status, body := page.get("/readyz")
		return status == http.StatusOK, body
	})
	for i := range 5 {
		s.enqueuePayload("x", fmt.Sprint("x", i), []byte(`{"tenant": "acme"}`))
	}
	s.await(10*time.Second, func() (bool, string) {
		parked, done := page.metric("jobthrottle_parked_jobs", "limit", "api"), page.metric("jobthrottle_attempts_total", "pattern", "x", "outcome", "done")
		return parked == 3 && done == 2, fmt.Sprint(parked, " jobs are parked, want 3; ", done, " are done, want 2")
	})
	for _, tt := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"jobthrottle_permits_granted_total", []string{"limit", "api"}, 2},
		{"jobthrottle_jobs_parked_total", []string{"limit", "api"}, 3},
		{"jobthrottle_queue_jobs", []string{"pool", "default", "queue", "default", "state", "parked"}, 3},
		{"jobthrottle_queue_jobs", []string{"pool", "default", "queue", "mail", "state", "parked"}, 0},
		{"jobthrottle_pool_slots", []string{"pool", "default"}, 10},
		{"jobthrottle_redis_up", nil, 1},
	} {
		if got := page.metric(tt.name, tt.labels...); got != tt.want {
			t.Errorf("%s%v is %v, want %v", tt.name, tt.labels, got, tt.want)
		}
	}
	for path, want := range map[string]string{
		"/": "<title>jobthrottle</title>", "/app.js": "import", "/healthz": "ok", "/api/history": "{",
		"/metrics": `jobthrottle_permits_granted_total{limit="api"} 2`, "/api/overview": `"name":"api"`,
	} {
		if status, body := page.get(path); status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %.300s, want %q", path, status, body, want)
		}
	}
	parked, err := s.inspector.ListRetryTasks("default")
	if err != nil || len(parked) != 3 {
		t.Fatal(parked, err)
	}
	if status, body := page.get("/api/explain?task=" + parked[0].ID); status != http.StatusOK || !strings.Contains(body, `is parked: limit \"api\" holds it`) {
		t.Errorf("explain: %d %s", status, body)
	}

	paused := func() bool {
		found, err := operate.NewFleet(s.rdb).Inspect(t.Context(), "api")
		if err != nil || len(found) != 1 {
			t.Fatal(found, err)
		}
		return found[0].Paused > 0
	}
	pause := func(headers ...string) (int, string) {
		return page.ask(http.MethodPost, "/api/limits/api/pause", `{"for": "1m"}`, headers...)
	}
	for _, tt := range []struct {
		name    string
		headers []string
		status  int
	}{
		{"no token", nil, http.StatusUnauthorized},
		{"a wrong token", []string{"Authorization", "Bearer guess"}, http.StatusUnauthorized},
		{"another site", []string{"Authorization", "Bearer " + adminToken, "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"another name for this machine", []string{"Authorization", "Bearer " + adminToken, "Host", "evil.example"}, http.StatusForbidden},
	} {
		if status, body := pause(tt.headers...); status != tt.status || paused() {
			t.Errorf("%s: %d %s, want %d; paused %t", tt.name, status, body, tt.status, paused())
		}
	}
	for _, headers := range [][]string{{"Sec-Fetch-Site", "cross-site"}, {"Host", "evil.example"}} {
		for _, path := range []string{"/api/overview", "/metrics"} {
			if status, body := page.get(path, headers...); status != http.StatusForbidden {
				t.Errorf("%s with %v: %d %.100s", path, headers, status, body)
			}
		}
	}
	if status, body := pause("Authorization", "Bearer "+adminToken); status != http.StatusOK || !paused() {
		t.Errorf("pause: %d %s, paused %t", status, body, paused())
	}
	if status, body := page.get("/api/overview"); status != http.StatusOK || strings.Contains(body, `"paused":0`) {
		t.Errorf("the page does not show the pause: %d %s", status, body)
	}
}

// TestShownWithoutToken: the page is read-only.
func TestShownWithoutToken(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	var page *shown
	stop := s.serve(member{yaml: "limits: { api: { rate: 2/24h } }\njobs: { x: { limits: [api] } }\n", made: func(l *asynqlimit.Limits) { page = newShown(t, l) }})
	s.await(10*time.Second, func() (bool, string) {
		status, body := page.get("/readyz")
		return status == http.StatusOK, body
	})
	for _, token := range []string{"", adminToken} {
		if status, body := page.ask(http.MethodPost, "/api/limits/api/pause", `{"for": "1m"}`, "Authorization", "Bearer "+token); status != http.StatusForbidden || !strings.Contains(body, "read only") {
			t.Errorf("%d %s, want it refused", status, body)
		}
	}
	stop()
	if status, body := page.get("/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("/readyz of a server that has ended: %d %s", status, body)
	}
	if status, body := page.get("/api/overview"); status != http.StatusOK || !strings.Contains(body, `"name":"api"`) {
		t.Errorf("the page of a server that has ended: %d %s", status, body)
	}
}

// TestSeveralServersShown: one page shows all servers of a process, each by its name, and counts
// each thing once.
func TestSeveralServersShown(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	cfg, err := config.Parse("config.yaml", []byte("limits: { api: { rate: 100/1s } }\njobs: { x: { limits: [api] } }\n"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := asynqlimit.New(s.rdb, cfg, asynqlimit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	page := newShown(t, first)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 3)
	t.Cleanup(func() {
		cancel()
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
	visits := make(chan struct{})
	go func() { // while servers are added
		defer close(visits)
		for range 20 {
			_, _ = page.registry.Gather()
		}
	}()
	mux := asynq.NewServeMux()
	mux.HandleFunc("x", func(context.Context, *asynq.Task) error { return nil })
	for i, limits := range []*asynqlimit.Limits{first, first.Another(asynqlimit.Options{}), first.Another(asynqlimit.Options{Name: "slow"})} {
		queue := fmt.Sprint("q", i)
		srv := asynq.NewServerFromRedisClient(limits.Redis(), limits.Configure(asynq.Config{Concurrency: i + 1, Queues: map[string]int{queue: 1}, LogLevel: asynq.ErrorLevel}))
		go func() { done <- limits.Serve(ctx, srv, mux) }()
		s.enqueue("x", queue, asynq.Queue(queue), asynq.Retention(time.Hour))
	}
	<-visits
	s.await(10*time.Second, func() (bool, string) {
		n := page.metric("jobthrottle_permits_granted_total", "limit", "api")
		return n == 3, fmt.Sprint(n, " permits are granted, want 3")
	})
	for i, pool := range []string{"default", "default-2", "slow"} {
		if slots := page.metric("jobthrottle_pool_slots", "pool", pool); slots != float64(i+1) {
			t.Errorf("pool %s has %v slots, want %d", pool, slots, i+1)
		}
		s.await(10*time.Second, func() (bool, string) {
			n := page.metric("jobthrottle_queue_jobs", "pool", pool, "queue", fmt.Sprint("q", i), "state", "completed")
			return n == 1, fmt.Sprintf("%v jobs completed in pool %s", n, pool)
		})
	}
	_, body := page.get("/api/overview")
	var reply struct {
		Pools []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(body), &reply); err != nil || len(reply.Pools) != 3 || reply.Pools[2].Name != "slow" {
		t.Errorf("pools %+v, %v", reply.Pools, err)
	}
}

// TestShownOddNames: names that asynq allows for queues, but Prometheus does not allow for
// labels.
func TestShownOddNames(t *testing.T) {
	t.Parallel()
	s := newSite(t, redistest.Start(t))
	cfg, err := config.Parse("config.yaml", []byte("limits: { api: { rate: 1/1s } }\njobs: { x: { limits: [api] } }\n"))
	if err != nil {
		t.Fatal(err)
	}
	limits, err := asynqlimit.New(s.rdb, cfg, asynqlimit.Options{Name: "a \xff"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { limits.Close() })
	limits.Configure(asynq.Config{Concurrency: 7, Queues: map[string]int{"mail \xff": 1, "a:b %\n": 1}})
	page := newShown(t, limits)
	for _, queue := range []string{"mail \uFFFD", "a:b %\n"} {
		if n := page.metric("jobthrottle_queue_jobs", "pool", "a \uFFFD", "queue", queue, "state", "pending"); n != 0 {
			t.Errorf("%q has %v pending jobs", queue, n)
		}
	}
	if status, body := page.get("/metrics"); status != http.StatusOK || !strings.Contains(body, "} 7") {
		t.Errorf("%d %s", status, body)
	}
}
