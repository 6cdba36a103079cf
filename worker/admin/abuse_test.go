package admin_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/jobthrottle/jobthrottle/worker/admin"
)

// serve serves the site's worker at another address, with what it logs.
func (s *site) serve(addr, adminToken string) *observer.ObservedLogs {
	s.tb.Helper()
	core, logs := observer.New(zap.InfoLevel)
	listener, err := admin.Listen(addr)
	if err != nil {
		s.tb.Fatal(err)
	}
	a := admin.Serve(listener, s.first, admin.Options{Token: adminToken, Logger: zap.New(core)})
	s.tb.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := a.Close(); err != nil {
			s.tb.Error(err)
		}
	})
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		s.tb.Fatal(err)
	}
	s.addr = "127.0.0.1:" + port
	return logs
}

// TestReadsOfOtherSites: no page of another site reads anything, tools do.
func TestReadsOfOtherSites(t *testing.T) {
	s := newSite(t, 1, twoLimits, token)
	for _, tt := range []struct {
		name, value string
		data        int // the status of what is data
	}{
		{"Sec-Fetch-Site", "cross-site", 403}, {"Sec-Fetch-Site", "same-site", 403}, {"Sec-Fetch-Site", "", 200},
		{"Sec-Fetch-Site", "same-origin", 200}, {"Sec-Fetch-Site", "none", 200}, {"Sec-Fetch-Site", "else", 403},
		{"Origin", "https://evil.example", 403}, {"Origin", "null", 403}, {"Origin", "http://" + s.addr, 200},
		{"Origin", "http://127.0.0.1:1", 403}, {"Origin", "::", 403}, {"User-Agent", "Prometheus/3", 200},
	} {
		for path, want := range map[string]int{
			"/api/overview": tt.data, "/api/history": tt.data, "/metrics": tt.data, "/": 200, "/app.js": 200, "/healthz": 200,
		} {
			status, body := s.ask(asked{method: http.MethodGet, path: path, edit: header(tt.name, tt.value)})
			if status != want || want == 403 && !strings.Contains(body, "another site") {
				t.Errorf("%s with %s %q: %d %.100s, want %d", path, tt.name, tt.value, status, body, want)
			}
		}
	}
	// One that says both has to be right in both.
	status, _ := s.ask(asked{method: http.MethodGet, path: "/metrics", edit: func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "same-origin")
		r.Header.Set("Origin", "https://evil.example")
	}})
	if status != 403 {
		t.Errorf("same-origin, with another origin: %d", status)
	}
}

// TestRebinding: where the address can be reached from elsewhere, a name of a stranger that points to it shows
// nothing of jobs, unless it is configured or the request has the token.
func TestRebinding(t *testing.T) {
	s := newSite(t, 1, twoLimits, token)
	s.archive(1, "mail:send", "idle")
	handler := admin.NewHandler(s.first, admin.Options{Token: token, Hosts: []string{"ops.example.com"}})
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 80}
		handler.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(at))))
	}))
	t.Cleanup(elsewhere.Close)
	s.addr = elsewhere.Listener.Addr().String()
	for host, want := range map[string]int{
		"192.0.2.1": 200, "192.0.2.1:9464": 200, "[2001:db8::1]:80": 200, "worker": 200, "worker:9464": 200, "worker.default.svc:80": 200,
		"worker.default.svc.cluster.local": 200, "ops.example.com": 200, "OPS.example.com:443": 200, "ops.example.com.": 200,
		"evil.example": 403, "evil.example:9464": 403, "ops.example.com.evil.example": 403, "192.0.2.1.evil.example": 403, "evil.example.": 403,
		"svc.evil.example": 403, "local.example": 403, "a.ops.example.com": 403,
	} {
		for _, path := range []string{"/api/job?task=mail:send-0000&queue=idle", "/api/jobs?state=archived", "/api/explain?task=mail:send-0000"} {
			for auth, want := range map[string]int{"": want, "Bearer " + token: 200} {
				status, body := s.ask(asked{method: http.MethodGet, path: path, edit: func(r *http.Request) {
					r.Host = host
					r.Header.Set("Authorization", auth)
				}})
				if status != want || want == 403 && (strings.Contains(body, "acme") || !strings.Contains(body, "admin.hosts")) {
					t.Errorf("%s of %q with %q: %d %.200s, want %d", path, host, auth, status, body, want)
				}
			}
		}
	}
	if status, _ := s.ask(asked{method: http.MethodGet, path: "/api/jobs", edit: func(r *http.Request) {
		r.Host = "evil.example"
		r.Header.Set("Authorization", "Bearer guess")
	}}); status != http.StatusUnauthorized {
		t.Errorf("a guess: %d", status)
	}
	if status, _ := s.ask(asked{method: http.MethodGet, path: "/api/overview", edit: func(r *http.Request) { r.Host = "evil.example" }}); status != 200 {
		t.Errorf("the overview: %d", status) // it has names and numbers only
	}
}

// TestWrongTokens: guesses are logged, one line a second, and are answered slowly. A client
// with the right token does not wait for them.
func TestWrongTokens(t *testing.T) {
	s := newSite(t, 1, twoLimits, token)
	s.awaitCreated("api")
	logs := s.serve("127.0.0.1:0", token)
	const guesses = 20
	start := time.Now()
	var group sync.WaitGroup
	for i := range guesses {
		group.Go(func() {
			status, body := s.ask(asked{path: "/api/limits/api/pause", body: `{"for": "1m"}`, edit: header("Authorization", fmt.Sprintf("Bearer guess %d\n", i)[:14])})
			if status != http.StatusUnauthorized {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	if status, body := s.ask(asked{path: "/api/limits/api/resume", body: `{}`}); status != http.StatusOK {
		t.Errorf("the right token meanwhile: %d %s", status, body)
	}
	group.Wait()
	took := time.Since(start)
	if least := (guesses - 1) * admin.GuessEvery; took < least {
		t.Errorf("%d guesses took %v, want %v at least", guesses, took, least)
	}
	told := logs.FilterMessageSnippet("wrong token").All()
	if len(told) == 0 || len(told) > int(took/time.Second)+1 {
		t.Fatalf("%d lines in %v, want one a second at most", len(told), took)
	}
	if from, ok := told[0].ContextMap()["from"].(string); !ok || !strings.HasPrefix(from, "127.0.0.1") || told[0].Level != zap.WarnLevel {
		t.Errorf("told %v", told[0])
	}
	for _, line := range told {
		if text := fmt.Sprint(line); strings.Contains(text, "guess ") || strings.Contains(text, token) {
			t.Errorf("the token is in the log: %s", text)
		}
	}
}

// TestTooManyGuesses: guesses that wait are bounded.
func TestTooManyGuesses(t *testing.T) {
	s := newSite(t, 1, twoLimits, token)
	s.serve("127.0.0.1:0", token)
	statuses := make(chan int, admin.MaxGuessing+10)
	var group sync.WaitGroup
	for range cap(statuses) {
		group.Go(func() {
			status, _ := s.ask(asked{path: "/api/limits/api/pause", body: `{"for": "1m"}`, edit: header("Authorization", "Bearer guess")})
			statuses <- status
		})
	}
	group.Wait()
	close(statuses)
	seen := map[int]int{}
	for status := range statuses {
		seen[status]++
	}
	if seen[http.StatusUnauthorized] < admin.MaxGuessing || seen[http.StatusTooManyRequests] == 0 || len(seen) != 2 {
		t.Errorf("statuses %v", seen)
	}
}

// TestEveryAddress: a server that anybody can reach without a token is reported.
func TestEveryAddress(t *testing.T) {
	s := newSite(t, 1, twoLimits, "")
	for _, tt := range []struct {
		addr, token string
		warned      bool
	}{{"0.0.0.0:0", "", true}, {":0", "", true}, {"0.0.0.0:0", token, false}, {"127.0.0.1:0", "", false}} {
		logs := s.serve(tt.addr, tt.token)
		if warned := logs.FilterMessageSnippet("anybody").Len() == 1; warned != tt.warned {
			t.Errorf("%s with token %q: %v", tt.addr, tt.token, logs.All())
		}
	}
}

// TestConnectionsAreCapped: those that idle make room for others, and the address goes on to answer.
func TestConnectionsAreCapped(t *testing.T) {
	s := newSite(t, 1, twoLimits, "")
	open := func(request bool) net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if request {
			fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		return conn
	}
	var idle []net.Conn
	for i := range admin.MaxConnections + 50 {
		idle = append(idle, open(i%2 == 0)) // some ask and stay, some say nothing
	}
	if status, _ := s.ask(asked{method: http.MethodGet, path: "/healthz"}); status != http.StatusOK {
		t.Errorf("another connection: %d", status)
	}
	closed := 0
	for _, conn := range idle {
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); err == io.EOF || err != nil && strings.Contains(err.Error(), "reset") {
			closed++
		}
		if closed >= 50 {
			break
		}
	}
	if closed < 50 {
		t.Errorf("%d of %d connections were closed, want 50 at least", closed, len(idle))
	}
}

// TestExplainIsOne: one explanation at a time asks Redis, and nobody waits for it for long.
func TestExplainIsOne(t *testing.T) {
	s := newSite(t, 1, twoLimits, "")
	s.enqueue(1, "default", "acme")
	if err := s.rdb.ClientPause(t.Context(), 20*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	defer s.rdb.ClientUnpause(t.Context())
	start := time.Now()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if status, body := s.ask(asked{method: http.MethodGet, path: "/api/explain?task=x"}); status != http.StatusServiceUnavailable {
				t.Errorf("%d %s", status, body)
			}
		})
	}
	group.Wait()
	if took := time.Since(start); took > 15*time.Second {
		t.Errorf("answered after %v", took)
	}
}

// TestTimeouts: no client holds a connection by reading or writing nothing.
func TestTimeouts(t *testing.T) {
	s := newSite(t, 1, twoLimits, "")
	h := s.server.HTTP()
	if h.ReadHeaderTimeout <= 0 || h.ReadTimeout <= 0 || h.WriteTimeout <= admin.ExplainTimeout || h.IdleTimeout <= 0 {
		t.Errorf("timeouts %v, %v, %v, %v: want all, and writing longer than an explanation", h.ReadHeaderTimeout, h.ReadTimeout, h.WriteTimeout, h.IdleTimeout)
	}
}
