package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/redistest"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// password is what nothing may show.
const password = "hunter2-s3cret"

// dialTLS is a client for the test's own use.
func dialTLS(t *testing.T, server redistest.TLS, user string) *redis.Client {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(server.Cert, server.Key)
	if err != nil {
		t.Fatal(err)
	}
	pem, err := os.ReadFile(server.Authority)
	if err != nil {
		t.Fatal(err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: x509.NewCertPool()}
	c.RootCAs.AppendCertsFromPEM(pem)
	opts := &redis.Options{Addr: server.Addr, TLSConfig: c, Username: user}
	if user != "" {
		opts.Password = password
	}
	rdb := redis.NewClient(opts)
	t.Cleanup(func() { rdb.Close() })
	return rdb
}

// grantDocumented makes the users that docs/redis.md describes, for the limits
// with the hash tag api, and a worker with an admin address.
func grantDocumented(t *testing.T, admin *redis.Client) {
	t.Helper()
	text, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```text\n(ACL SETUSER .*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 3 {
		t.Fatalf("docs/redis.md describes %d users, want 3", len(blocks))
	}
	page := regexp.MustCompile(`With the admin address: (.*)`).FindStringSubmatch(string(text))
	if page == nil {
		t.Fatal("docs/redis.md does not say what the admin address needs")
	}
	for _, block := range blocks {
		var args []any
		for _, word := range strings.Fields(block[1]) {
			args = append(args, strings.Replace(word, "PASSWORD", password, 1))
		}
		if args[2] == "worker" {
			for _, word := range strings.Fields(strings.ReplaceAll(page[1], "`", "")) {
				args = append(args, word)
			}
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
}

// TestExactRights: over TLS, users with exactly the rights that docs/redis.md lists enqueue
// jobs, run them with all that may happen to them, read the admin address, and use the library.
// Redis refuses nothing except what go-redis tries when it connects. Their password shows
// nowhere.
func TestExactRights(t *testing.T) {
	const jobs = 120
	server := redistest.StartTLS(t, "127.0.0.1")
	admin := dialTLS(t, server, "")
	grantDocumented(t, admin)
	section := func(user string) string {
		return fmt.Sprintf("{ addrs: [%q], username: %s, password: %s, tls: true, tls_ca: %q, tls_cert: %q, tls_key: %q }",
			server.Addr, user, password, server.Authority, server.Cert, server.Key)
	}
	s := siteOver(t, topology{section: section("worker"), rdb: admin})
	ofWorker := s.config
	s.config = strings.Replace(ofWorker, "config.yaml", "enqueue.yaml", 1)
	text, err := os.ReadFile(ofWorker)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.config, []byte(strings.Replace(string(text), section("worker"), section("enqueue"), 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.enqueueLines(jobs, s.line)
	s.enqueueLines(jobs, s.line) // all there already
	s.config = ofWorker
	w := s.startWorker()
	s.awaitArrivals(jobs/2, time.Minute)
	for _, path := range []string{"/metrics", "/readyz", "/"} {
		resp, err := http.Get("http://" + w.admin + path)
		if err != nil {
			t.Fatal(err)
		}
		page, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || strings.Contains(string(page), password) {
			t.Errorf("%s: status %d, %v, or it shows the password", path, resp.StatusCode, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	s.awaitDone(jobs, time.Minute)
	s.stop(w)
	s.checkOnceEach(jobs)
	s.checkLimit()
	if said := w.output.String(); strings.Contains(said, password) || strings.Contains(said, "NOPERM") {
		t.Errorf("the worker said:\n%s", said)
	}
	useLibrary(t, dialTLS(t, server, "limits"))
	checkNothingRefused(t, admin)
}

// useLibrary does with one limiter what the packages throttle and operate can do.
func useLibrary(t *testing.T, rdb *redis.Client) {
	t.Helper()
	c, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := c.Limiter("api")
	if err != nil {
		t.Fatal(err)
	}
	fleet := operate.NewFleet(rdb)
	rate := throttle.Rate{Permits: 10, Interval: time.Second}
	ctx := t.Context()
	for i, step := range []func() error{
		func() error { return l.SetRate(ctx, rate) },
		func() error { return l.Acquire(ctx, 1) },
		func() error { return l.Acquire(ctx, 1) }, // the fast way
		func() error { return l.Acquire(ctx, 1) }, // and once more, over its own reply
		func() error { return l.Acquire(ctx, 10) },
		func() error { return l.Release(ctx, 1) },
		func() error { return l.Pause(ctx, time.Millisecond) },
		func() error { return l.Resume(ctx) },
		func() error { _, err := fleet.Inspect(ctx, "api"); return err },
		func() error { _, err := fleet.InspectClient(ctx, c.ID(), "api"); return err },
		func() error { _, err := l.Config(ctx); return err },
		func() error { _, err := l.AvailablePermits(ctx); return err },
		func() error { _, err := l.UpdateRate(ctx, rate); return err },
		func() error { return fleet.Pin(ctx, "api") },
		func() error { return fleet.Unpin(ctx, "api") },
		func() error { _, err := l.Expire(ctx, time.Minute); return err },
		func() error { _, err := l.ClearExpire(ctx); return err },
		func() error { _, err := l.Delete(ctx); return err },
	} {
		if err := step(); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
	}
}

// checkNothingRefused fails the test if Redis refused anybody anything but
// what clients say about themselves.
func checkNothingRefused(t *testing.T, admin *redis.Client) {
	t.Helper()
	entries, err := admin.ACLLog(context.Background(), 1000).Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Object, "client") {
			t.Errorf("Redis refused the user %s: %s (%s)", e.Username, e.Object, e.Reason)
		}
	}
}

// TestPasswordsStayOut: whatever is wrong with Redis, no command says the password.
func TestPasswordsStayOut(t *testing.T) {
	guarded := redistest.Start(t, "--requirepass", "another")
	secure := redistest.StartTLS(t, "127.0.0.1")
	jobs := write(t, "jobs.ndjson", `{"type":"x"}`)
	for name, section := range map[string]string{
		"wrong password":     fmt.Sprintf("{ addrs: [%q], password: %s }", guarded, password),
		"wrong user":         fmt.Sprintf("{ addrs: [%q], username: jobs, password: %s }", guarded, password),
		"refused":            fmt.Sprintf(`{ addrs: ["127.0.0.1:1"], password: %s }`, password),
		"unknown authority":  fmt.Sprintf("{ addrs: [%q], password: %s, tls: true }", secure.Addr, password),
		"no TLS":             fmt.Sprintf("{ addrs: [%q], password: %s }", secure.Addr, password),
		"no such key":        fmt.Sprintf("{ password: %s, passwd: %s }", password, password),
		"sentinels' refused": fmt.Sprintf(`{ addrs: ["127.0.0.1:1"], sentinel_master: m, password: %s, sentinel_password: %s }`, password, password),
	} {
		t.Run(name, func(t *testing.T) {
			config := write(t, "config.yaml", "redis: "+section+"\nlog: { level: debug }\n")
			for _, args := range [][]string{{"worker", "--config", config}, {"enqueue", "--config", config, "--file", jobs}} {
				got := runToEnd(t, args[0], args[1:]...)
				if got.status == 0 || got.stderr == "" {
					t.Errorf("%s: status %d, stderr %q", args[0], got.status, got.stderr)
				}
				if strings.Contains(got.stdout+got.stderr, password) {
					t.Errorf("%s shows the password:\n%s%s", args[0], got.stdout, got.stderr)
				}
			}
		})
	}
}
