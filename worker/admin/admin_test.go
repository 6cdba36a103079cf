package admin_test

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/worker"
	"github.com/jobthrottle/jobthrottle/worker/admin"
)

// TestPages: what is where, and under which headers.
func TestPages(t *testing.T) {
	s := newSite(t, 1, twoLimits, token)
	s.awaitCreated("api")
	tests := []struct {
		path   string
		status int
		kind   string
		body   string
	}{
		{"/", 200, "text/html; charset=utf-8", "<title>jobthrottle</title>"},
		{"/app.js", 200, "text/javascript; charset=utf-8", "import"},
		{"/style.css", 200, "text/css; charset=utf-8", ":root"},
		{"/uplot/LICENSE", 200, "", "MIT"},
		{"/metrics", 200, "text/plain", "jobthrottle_permits_granted_total"},
		{"/healthz", 200, "", "ok"},
		{"/readyz", 200, "", "ready"},
		{"/api/overview", 200, "application/json", `"name":"api"`},
		{"/api/history", 200, "application/json", `{`},
		{"/api/explain", 400, "application/json", "task=ID"},
		{"/api/explain?task=nobody", 404, "application/json", "no such job"},
		{"/api/", 400, "application/json", "no such path"},
		{"/uplot/", 404, "", "not found"},
		{"/missing", 404, "", "not found"},
	}
	for _, tt := range tests {
		t.Run(tt.path, func(t *testing.T) {
			resp, err := http.Get("http://" + s.addr + tt.path)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body := new(strings.Builder)
			if err := resp.Write(body); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != tt.status || !strings.Contains(body.String(), tt.body) {
				t.Errorf("%d %.300q, want %d with %q", resp.StatusCode, body, tt.status, tt.body)
			}
			if kind := resp.Header.Get("Content-Type"); !strings.HasPrefix(kind, tt.kind) {
				t.Errorf("Content-Type %q, want %q", kind, tt.kind)
			}
			csp := resp.Header.Get("Content-Security-Policy")
			for _, want := range []string{"default-src 'none'", "script-src 'self';", "style-src 'self';", "frame-ancestors 'none'"} {
				if !strings.Contains(csp, want) {
					t.Errorf("Content-Security-Policy %q lacks %q", csp, want)
				}
			}
			if got := resp.Header.Get("X-Content-Type-Options"); got != "nosniff" {
				t.Errorf("X-Content-Type-Options %q", got)
			}
		})
	}
}

// TestHost: only names of this machine are served on loopback, but orchestrators
// may ask for the health under any.
func TestHost(t *testing.T) {
	s := newSite(t, 1, twoLimits, "")
	for host, status := range map[string]int{
		"localhost": 200, "LOCALHOST:1234": 200, "127.0.0.1": 200, "127.8.8.8:1": 200, "[::1]:80": 200, "[::1]": 200,
		"evil.example": 403, "localhost.evil.example": 403, "192.0.2.1": 403, "[2001:db8::1]:80": 403,
	} {
		for path, want := range map[string]int{"/api/overview": status, "/": status, "/metrics": status, "/healthz": 200} {
			got, body := s.ask(asked{method: http.MethodGet, path: path, edit: func(r *http.Request) { r.Host = host }})
			if got != want {
				t.Errorf("%s of %q: %d %.100s, want %d", path, host, got, body, want)
			}
		}
	}
}

// serveStarting serves the page of a worker that does not run yet.
func serveStarting(t *testing.T, rdb redis.UniversalClient) *site {
	t.Helper()
	cfg, err := config.Parse("config.yaml", []byte("limits: { api: { rate: 10/1s } }\njobs: { x: { limits: [api] } }\n"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := worker.NewWithClient(cfg, zap.NewNop(), rdb)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := admin.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := admin.Serve(listener, w, admin.Options{Token: token})
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		a.Close()
	})
	return &site{tb: t, addr: listener.Addr().String()}
}

// TestRedisAway: the address goes on to answer, and says what is wrong.
func TestRedisAway(t *testing.T) {
	server := redistest.New(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, MaxRetries: -1, DialTimeout: 100 * time.Millisecond, DialerRetries: 1})
	t.Cleanup(func() { rdb.Close() })
	s := serveStarting(t, rdb)
	if status, body := s.ask(asked{method: http.MethodGet, path: "/readyz"}); status != 503 || !strings.Contains(body, "starting") {
		t.Errorf("/readyz of a worker that does not run yet: %d %s", status, body)
	}
	server.Stop()
	for _, tt := range []struct {
		asked  asked
		status int
		body   string
	}{
		{asked{method: http.MethodGet, path: "/healthz"}, 200, "ok"},
		{asked{method: http.MethodGet, path: "/readyz"}, 503, "cannot reach Redis"},
		{asked{method: http.MethodGet, path: "/metrics"}, 200, "jobthrottle_redis_up 0"},
		{asked{method: http.MethodGet, path: "/api/overview"}, 503, "error"},
		{asked{path: "/api/limits/api/pause", body: `{"for": "1m"}`}, 503, "error"},
		{asked{method: http.MethodGet, path: "/"}, 200, "jobthrottle"},
	} {
		if status, body := s.ask(tt.asked); status != tt.status || !strings.Contains(body, tt.body) {
			t.Errorf("%s: %d %.300s, want %d with %q", tt.asked.path, status, body, tt.status, tt.body)
		}
	}
}

// TestRedisStandsStill: while Redis says nothing at all, each address answers within its own time, however many ask at once.
func TestRedisStandsStill(t *testing.T) {
	server := redistest.New(t)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true}) // as a worker's
	t.Cleanup(func() { rdb.Close() })
	s := serveStarting(t, rdb)
	if _, err := asynq.NewClientFromRedisClient(rdb).Enqueue(asynq.NewTask("x", nil), asynq.TaskID("job")); err != nil {
		t.Fatal(err)
	}
	server.Freeze()
	defer server.Thaw()
	var all sync.WaitGroup
	for _, tt := range []struct {
		asked  asked
		status int
		body   string
		within time.Duration
	}{
		{asked{method: http.MethodGet, path: "/healthz"}, 200, "ok", time.Second},
		{asked{method: http.MethodGet, path: "/metrics"}, 200, "jobthrottle_redis_up 0", 8 * time.Second},
		{asked{method: http.MethodGet, path: "/api/overview"}, 503, "error", 8 * time.Second},
		{asked{method: http.MethodGet, path: "/api/workers"}, 503, "error", 8 * time.Second},
		{asked{method: http.MethodGet, path: "/api/past"}, 503, "error", 8 * time.Second},
		{asked{method: http.MethodGet, path: "/api/explain?task=job"}, 503, "error", 8 * time.Second},
		{asked{method: http.MethodGet, path: "/api/jobs?state=waiting"}, 503, "error", 8 * time.Second},
		{asked{path: "/api/limits/api/pause", body: `{"for": "1m"}`}, 503, "error", 8 * time.Second},
		{asked{path: "/api/queues/default/pause", body: `{}`}, 503, "error", 8 * time.Second},
	} {
		for range 3 {
			all.Go(func() {
				began := time.Now()
				status, body := s.ask(tt.asked)
				if took := time.Since(began); took > tt.within {
					t.Errorf("%s took %v, want %v", tt.asked.path, took, tt.within)
				}
				if status != tt.status || !strings.Contains(body, tt.body) {
					t.Errorf("%s: %d %.300s, want %d with %q", tt.asked.path, status, body, tt.status, tt.body)
				}
			})
		}
	}
	all.Wait()
}

func TestListen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for addr, want := range map[string]string{"not-an-address": "not-an-address", taken.Addr().String(): "--admin-addr"} {
		if _, err := admin.Listen(addr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want an error with %q", addr, err, want)
		}
	}
}
