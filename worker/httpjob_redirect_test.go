package worker

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/config"
)

func TestHTTPJobRedirectsThatAreNotFollowed(t *testing.T) {
	private := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("arrived at a private address") }))
	defer private.Close()
	for _, tc := range []struct {
		name, to string
		want     string
	}{
		{"other host", "http://other.example.com/?s3cret", "allow_hosts"},
		{"loopback", private.URL + "/?s3cret", "allow_hosts"},
		{"decimal address", "http://2130706433/?s3cret", "allow_hosts"},
		{"octal address", "http://0177.0.0.1/?s3cret", "allow_hosts"},
		{"mapped address", "http://[::ffff:127.0.0.1]/?s3cret", "allow_hosts"},
		{"metadata", "http://169.254.169.254/latest/?s3cret", "allow_hosts"},
		{"user name", "http://api.example.com@127.0.0.1/?s3cret", "user name"},
		{"password", "http://user:s3cret@api.example.com/", "user name"},
		{"other scheme", "file:///etc/s3cret", "neither http nor https"},
		{"malformed", "http://api.example.com:s3cret/", "malformed"},
		{"malformed escape", "/%zz?s3cret", "malformed"},
		{"itself", "", "more than 10 redirects"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			url, job := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header()["Location"] = []string{tc.to}
				if tc.to == "" {
					w.Header()["Location"] = []string{"/?s3cret"}
				}
				w.WriteHeader(http.StatusFound)
			})
			err := perform(t, job, HTTPRequest{URL: url})
			if err == nil || !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want a permanent one about %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %v shows a secret", err)
			}
		})
	}
}

// TestHTTPJobKeepsItsMethod: a redirect after which the request would be a GET without its body is not followed: the job would
// be done, and what it asked for not. A 303 says that the request was served.
func TestHTTPJobKeepsItsMethod(t *testing.T) {
	for _, status := range []int{http.StatusMovedPermanently, http.StatusFound} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
			var arrived []string
			url, job := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
				if arrived = append(arrived, r.Method+" "+r.URL.Path); r.URL.Path == "/old" {
					w.Header().Set("Location", "/new")
					w.WriteHeader(status)
				}
			})
			err := perform(t, job, HTTPRequest{Method: method, URL: url + "/old", Body: "x"})
			if !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), "would become GET") || len(arrived) != 1 {
				t.Errorf("%s, %d: %v, arrived %q; want a permanent error", method, status, err, arrived)
			}
		}
	}
}

// TestHTTPJobIsRefusedSlowly: the limits of a job that an API refuses pause at once, also if the rest of the answer is slow.
func TestHTTPJobIsRefusedSlowly(t *testing.T) {
	done := make(chan struct{})
	url, job := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "5")
		w.WriteHeader(http.StatusTooManyRequests)
		w.(http.Flusher).Flush()
		select {
		case <-done:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(done) })
	least := time.Hour
	for range 5 {
		began := time.Now()
		after, ok := errors.AsType[*RetryAfterError](perform(t, job, HTTPRequest{URL: url}))
		if !ok || after.After != 5*time.Second {
			t.Errorf("%+v, want to try again after 5s", after)
		}
		least = min(least, time.Since(began))
	}
	if least >= drainTimeout {
		t.Errorf("each of 5 jobs waited at least %v for the rest of the answer", least)
	}
}

// TestHTTPJobFollowsTenRedirects: as many as the documentation says.
func TestHTTPJobFollowsTenRedirects(t *testing.T) {
	for redirects, want := range map[int]string{10: "418", 11: "more than 10 redirects"} {
		requests := 0
		url, job := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
			if requests++; requests <= redirects {
				http.Redirect(w, r, "/", http.StatusFound)
				return
			}
			w.WriteHeader(http.StatusTeapot)
		})
		if err := perform(t, job, HTTPRequest{URL: url}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d redirects: %v, want %q", redirects, err, want)
		}
	}
}

// TestHTTPJobRefusesToLeaveHTTPS: no redirect leads from https to http, also not one of a job that
// began with http: the answer over https may have put into the URL what nobody else may read.
func TestHTTPJobRefusesToLeaveHTTPS(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("arrived without TLS") }))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.RedirectHandler(plain.URL, http.StatusTemporaryRedirect))
	defer secure.Close()
	cfg := config.Default()
	cfg.HTTP.AllowHosts = []string{"127.0.0.1"}
	job := newTestHTTPJob(t, cfg)
	job.base.TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig
	first := httptest.NewServer(http.RedirectHandler(secure.URL, http.StatusTemporaryRedirect))
	defer first.Close()
	for _, request := range []HTTPRequest{{Method: "POST", URL: secure.URL, Body: "s3cret"}, {URL: secure.URL}, {URL: first.URL}} {
		err := perform(t, job, request)
		if !errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), "https to http") {
			t.Errorf("%+v: error %v", request, err)
		}
	}
}

// What is meant for one server stays with it: on the way through another, and on
// the way back.
func TestHTTPJobRedirectsKeepSecretsFromOthers(t *testing.T) {
	type arrival struct {
		body string
		h    http.Header
	}
	arrivals := map[string]arrival{}
	note := func(r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		arrivals[r.URL.Path] = arrival{string(b), r.Header}
	}
	var first, second *httptest.Server
	first = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(r)
		switch r.URL.Path {
		case "/start":
			http.Redirect(w, r, "/same", http.StatusTemporaryRedirect)
		case "/same":
			http.Redirect(w, r, second.URL+"/other", http.StatusTemporaryRedirect)
		}
	}))
	defer first.Close()
	second = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note(r)
		http.Redirect(w, r, first.URL+"/back", http.StatusTemporaryRedirect)
	}))
	defer second.Close()
	cfg := config.Default()
	cfg.HTTP.AllowHosts = []string{first.Listener.Addr().String(), second.Listener.Addr().String()}
	runner := runHTTPJob(t, newTestHTTPJob(t, cfg))
	request := HTTPRequest{Method: "POST", URL: first.URL + "/start?key=s3cret", Body: "payload", Headers: map[string]string{
		"Authorization": "Bearer s3cret", "X-Api-Key": "s3cret", "Cookie": "s=s3cret", "Content-Type": "text/plain",
	}}
	// The body is for the first server, too: it goes to no other.
	if _, err := runner.do(t, "task", request); err == nil || !strings.Contains(err.Error(), "with a body to another origin") {
		t.Errorf("with a body: %v", err)
	}
	if len(arrivals) != 2 || arrivals["/same"].body != "payload" {
		t.Errorf("with a body there arrived %v", arrivals)
	}
	request.Body = ""
	if _, err := runner.do(t, "another", request); err != nil {
		t.Fatal(err)
	}
	for path, secrets := range map[string]bool{"/start": true, "/same": true, "/other": false, "/back": false} {
		a, ok := arrivals[path]
		if !ok || a.body != "" || a.h.Get("Content-Type") != "text/plain" || a.h.Get("Referer") != "" {
			t.Errorf("%s: body %q, headers %v", path, a.body, a.h)
		}
		for _, name := range []string{"Authorization", "X-Api-Key", "Cookie", "Idempotency-Key"} {
			if got := a.h.Get(name) != ""; got != secrets {
				t.Errorf("%s: header %s sent = %t, want %t", path, name, got, secrets)
			}
		}
	}
}

// A server that answers with what it got, or otherwise not in HTTP: net/http
// quotes such answers in its errors.
func TestHTTPJobErrorsShowNoSecrets(t *testing.T) {
	for name, answer := range map[string]func(conn net.Conn, request string){
		"echo":             func(conn net.Conn, request string) { io.WriteString(conn, request) },
		"hang up":          func(net.Conn, string) {},
		"malformed status": func(conn net.Conn, request string) { io.WriteString(conn, "HTTP/1.1 "+request) },
		"malformed header": func(conn net.Conn, request string) { io.WriteString(conn, "HTTP/1.1 200 OK\r\n"+request) },
		"malformed length": func(conn net.Conn, request string) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: s3cret\r\n\r\n")
		},
		"malformed encoding": func(conn net.Conn, request string) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: s3cret\r\n\r\n")
		},
		"malformed chunk": func(conn net.Conn, request string) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\ns3cret\r\n")
		},
		"cut off": func(conn net.Conn, request string) {
			io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ns3cret")
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			defer func() { l.Close(); <-done }()
			go func() {
				defer close(done)
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					br := bufio.NewReader(conn)
					var request strings.Builder
					for !strings.HasSuffix(request.String(), "\r\n\r\n") {
						line, err := br.ReadString('\n')
						if err != nil {
							break
						}
						request.WriteString(line)
					}
					answer(conn, request.String())
					conn.Close()
				}
			}()
			cfg := config.Default()
			cfg.HTTP.AllowHosts = []string{"127.0.0.1"}
			err = perform(t, newTestHTTPJob(t, cfg), HTTPRequest{
				URL: "http://" + l.Addr().String() + "/s3cret?key=s3cret", Headers: map[string]string{"Authorization": "Bearer s3cret"},
			})
			if _, ok := errors.AsType[*HTTPNetworkError](err); !ok || errors.Is(err, asynq.SkipRetry) {
				t.Fatalf("error %v, want an HTTPNetworkError that is retried", err)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %v shows a secret", err)
			}
			t.Log(err)
		})
	}
}
