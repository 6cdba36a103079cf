package worker

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/config"
)

func TestHTTPJobOutcomes(t *testing.T) {
	const permanently, again, parked = "permanent", "retried", "parked"
	for _, tc := range []struct {
		status     int
		retryAfter string
		want       string
	}{
		{304, "", permanently},
		{400, "", permanently},
		{401, "", permanently},
		{404, "", permanently},
		{422, "3", permanently},
		{429, "", again},
		{429, "soon", again},
		{429, "0", again},
		{429, "3", parked},
		{500, "", again},
		{500, "3", again},
		{502, "", again},
		{503, "", again},
		{503, "3", parked},
	} {
		t.Run(fmt.Sprintf("%d %s", tc.status, tc.retryAfter), func(t *testing.T) {
			url, job := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
				if tc.retryAfter != "" {
					w.Header().Set("Retry-After", tc.retryAfter)
				}
				w.WriteHeader(tc.status)
			})
			err := perform(t, job, HTTPRequest{URL: url})
			after, isParked := errors.AsType[*RetryAfterError](err)
			if isParked {
				if tc.want != parked || after.After != 3*time.Second {
					t.Errorf("parked for %v, want %s", after.After, tc.want)
				}
				return
			}
			status, ok := errors.AsType[*HTTPStatusError](err)
			if !ok || status.Status != tc.status {
				t.Fatalf("error %v, want an HTTPStatusError of %d", err, tc.status)
			}
			if got := errors.Is(err, asynq.SkipRetry); got != (tc.want == permanently) {
				t.Errorf("permanent = %t, want %s", got, tc.want)
			}
		})
	}
}

func TestHTTPJobSendsWhatThePayloadSays(t *testing.T) {
	var got *http.Request
	var body []byte
	url, job := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	})
	runner := runHTTPJob(t, job)
	for i, tc := range []struct {
		r          HTTPRequest
		method     string
		key, agent string
	}{
		{HTTPRequest{}, "GET", "", "jobthrottle/test"},
		{HTTPRequest{Method: "post", Body: `{"a":1}`}, "POST", "task-1", "jobthrottle/test"},
		{HTTPRequest{Method: "PATCH"}, "PATCH", "task-2", "jobthrottle/test"},
		{HTTPRequest{Method: "PUT", Body: "x"}, "PUT", "", "jobthrottle/test"},
		{HTTPRequest{Method: "POST", Headers: map[string]string{"idempotency-key": "mine", "User-Agent": "me"}}, "POST", "mine", "me"},
		{HTTPRequest{Method: "DELETE", Headers: map[string]string{"X-A": "b"}}, "DELETE", "", "jobthrottle/test"},
	} {
		tc.r.URL = url + "/v1?q=1"
		if _, err := runner.do(t, fmt.Sprintf("task-%d", i), tc.r); err != nil {
			t.Fatal(err)
		}
		if got.Method != tc.method || string(body) != tc.r.Body || got.URL.RequestURI() != "/v1?q=1" ||
			got.Header.Get("Idempotency-Key") != tc.key || got.UserAgent() != tc.agent || got.Header.Get("X-A") != tc.r.Headers["X-A"] {
			t.Errorf("%d: got %s %s %q with %v", i, got.Method, got.URL, body, got.Header)
		}
	}
}

func TestHTTPJobKeepsTheResult(t *testing.T) {
	var answer func(w http.ResponseWriter)
	url, job := serveAPI(t, func(w http.ResponseWriter, r *http.Request) { answer(w) })
	runner := runHTTPJob(t, job)
	long := strings.Repeat("x", maxResultBody)
	for _, tc := range []struct {
		name   string
		answer func(w http.ResponseWriter)
		status int
		text   string
		binary []byte
		cut    bool
	}{
		{"text", func(w http.ResponseWriter) { io.WriteString(w, "héllo") }, 200, "héllo", nil, false},
		{"nothing", func(w http.ResponseWriter) { w.WriteHeader(204) }, 204, "", nil, false},
		{"binary", func(w http.ResponseWriter) { w.Write([]byte{0xff, 0}) }, 200, "", []byte{0xff, 0}, false},
		{"as long as may be", func(w http.ResponseWriter) { io.WriteString(w, long) }, 200, long, nil, false},
		{"longer", func(w http.ResponseWriter) { io.WriteString(w, long+"y") }, 200, long, nil, true},
		{"cut within a rune", func(w http.ResponseWriter) { io.WriteString(w, long[1:]+"é") }, 200, long[1:], nil, true},
		{"binary, longer", func(w http.ResponseWriter) { w.Write(bytes.Repeat([]byte{0xff}, maxResultBody+1)) }, 200, "", bytes.Repeat([]byte{0xff}, maxResultBody), true},
		{"gzip bomb", func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			z.Write(bytes.Repeat([]byte("x"), 10<<20))
			z.Close()
		}, 200, long, nil, true},
		{"endless", func(w http.ResponseWriter) {
			for {
				if _, err := io.WriteString(w, long); err != nil {
					return
				}
			}
		}, 200, long, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answer = func(w http.ResponseWriter) {
				w.Header().Set("X-Request-Id", "7")
				w.Header().Set("Set-Cookie", "session=s3cret")
				tc.answer(w)
			}
			got, err := runner.do(t, tc.name, HTTPRequest{URL: url})
			if err != nil {
				t.Fatal(err)
			}
			if got.Status != tc.status || got.Body != tc.text || !bytes.Equal(got.BodyBytes, tc.binary) || got.Truncated != tc.cut {
				t.Errorf("result %d, %d bytes of text, %d of others, truncated %t; want %d, %d, %d, %t",
					got.Status, len(got.Body), len(got.BodyBytes), got.Truncated, tc.status, len(tc.text), len(tc.binary), tc.cut)
			}
			if got.Headers.Get("X-Request-Id") != "7" || got.Headers.Get("Set-Cookie") != "" {
				t.Errorf("headers %v", got.Headers)
			}
		})
	}
}

// An API that sends a byte now and then, for ever, costs a job its timeout and
// no more; once the answer is clear, not even that.
func TestHTTPJobTricklingAnswer(t *testing.T) {
	trickle := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			io.WriteString(w, "x")
			http.NewResponseController(w).Flush()
			<-time.After(time.Millisecond)
		}
	}
	t.Run("success", func(t *testing.T) {
		url, job := serveAPI(t, trickle)
		job.timeout = 50 * time.Millisecond
		err := perform(t, job, HTTPRequest{URL: url})
		if _, ok := errors.AsType[*HTTPNetworkError](err); !ok || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v, want a timeout", err)
		}
	})
	t.Run("failure", func(t *testing.T) {
		url, job := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(500)
			trickle(w, r)
		})
		job.timeout = time.Hour
		start := time.Now()
		err := perform(t, job, HTTPRequest{URL: url})
		if _, ok := errors.AsType[*HTTPStatusError](err); !ok || time.Since(start) > time.Minute {
			t.Errorf("error %v after %v", err, time.Since(start))
		}
	})
}

// With http.keep_error_body the error says what the API said: 1 KB at most, without secrets, and without a wait for the rest.
func TestHTTPJobKeepsErrorBody(t *testing.T) {
	endless := strings.Repeat("é", 2000)
	for _, tc := range []struct {
		name   string
		status int
		body   string
		hangs  bool // the answer does not end
		want   string
	}{
		{"permanent", 422, "{\"error\":\n \"no such currency\"}\n", false, "{\"error\":\n \"no such currency\"}"},
		{"retried", 500, "boom", false, "boom"},
		{"refused without a time", 429, "slow down", false, "slow down"},
		{"long", 400, endless, false, strings.Repeat("é", 512) + "..."},
		{"long, cut within a rune", 400, "x" + endless, false, "x" + strings.Repeat("é", 511) + "..."},
		{"not text", 500, "a\xff\xfeb", false, "a\uFFFDb"},
		{"none", 404, "", false, ""},
		{"stalls", 503, "half of", true, "half of"},
		{"a secret", 401, "bad key\nsk_live_1234567890abcdef", false, "bad key\n(hidden)"},
		{"a secret field", 401, "no\napi_key=abcdefgh", false, "no\napi_key=(hidden)"},
		{"a secret across the cut", 401, strings.Repeat("x ", 510) + "sk_live_1234567890abcdef", false, strings.Repeat("x ", 510) + "(hid..."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(tc.status)
				io.WriteString(w, tc.body)
				if tc.hangs {
					http.NewResponseController(w).Flush()
					<-r.Context().Done()
				}
			}))
			t.Cleanup(api.Close)
			for _, keeps := range []bool{false, true} {
				cfg := config.Default()
				cfg.HTTP = config.HTTP{AllowHosts: []string{api.Listener.Addr().String()}, Timeout: config.Duration(time.Hour), KeepErrorBody: keeps}
				want := fmt.Sprintf("http:request: GET %s: answered %d %s", api.Listener.Addr(), tc.status, http.StatusText(tc.status))
				if keeps && tc.want != "" {
					want += ": " + tc.want
				}
				err := perform(t, newTestHTTPJob(t, cfg), HTTPRequest{URL: api.URL})
				status, ok := errors.AsType[*HTTPStatusError](err)
				if !ok || status.Error() != want {
					t.Errorf("keep_error_body: %v: error %v\nwant %s", keeps, err, want)
				}
			}
		})
	}
}

func TestHTTPJobTimeout(t *testing.T) {
	url, job := serveAPI(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	job.timeout = 50 * time.Millisecond
	err := perform(t, job, HTTPRequest{URL: url})
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), "no answer within 50ms (http.timeout)") {
		t.Errorf("error %v", err)
	}
}

func TestHTTPJobContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(withoutLimits(t.Context()))
	url, job := serveAPI(t, func(w http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	err := job.ProcessTask(ctx, asynq.NewTask(HTTPTaskType, []byte(`{"url":"`+url+`"}`)))
	if !errors.Is(err, context.Canceled) || errors.Is(err, asynq.SkipRetry) {
		t.Errorf("error %v", err)
	}
}

func TestHTTPJobNetworkErrorsAreRetried(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.HTTP.AllowHosts = []string{"127.0.0.1"}
	job := newTestHTTPJob(t, cfg)
	l.Close()
	err = perform(t, job, HTTPRequest{URL: "http://" + l.Addr().String()})
	if _, ok := errors.AsType[*HTTPNetworkError](err); !ok || errors.Is(err, asynq.SkipRetry) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("error %v", err)
	}
}

func TestHTTPJobHostsThatAreNotAllowed(t *testing.T) {
	_, job := serveAPI(t, func(http.ResponseWriter, *http.Request) { t.Error("arrived") })
	err := perform(t, job, HTTPRequest{URL: "https://other.example.com/v1?key=s3cret"})
	host, ok := errors.AsType[*HTTPHostError](err)
	if !ok || host.Host != "other.example.com" || !isBlocked(err, HostNotAllowed) || !strings.Contains(err.Error(), "http.allow_hosts") {
		t.Errorf("error %v", err)
	}
}

// Whatever the answers are like, jobs of one slot need one connection.
func TestHTTPJobReusesConnections(t *testing.T) {
	var conns atomic.Int32
	api := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/500":
			w.WriteHeader(500)
		case "/429":
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
		case "/404":
			w.WriteHeader(404)
		}
		io.WriteString(w, strings.Repeat("x", 128<<10))
	}))
	api.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			conns.Add(1)
		}
	}
	api.Start()
	t.Cleanup(api.Close)
	cfg := config.Default()
	cfg.HTTP.AllowHosts = []string{api.Listener.Addr().String()}
	runner := runHTTPJob(t, newTestHTTPJob(t, cfg))
	for i, path := range []string{"/200", "/404", "/500", "/429", "/200"} {
		_, _ = runner.do(t, fmt.Sprint(i), HTTPRequest{URL: api.URL + path})
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for requests one after another", n)
	}
}
