package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/limitname"
	"github.com/jobthrottle/jobthrottle/producer"
)

// hostile is what an attacker writes: by kind, with the part that has to refuse it.
type hostile struct {
	kind   string
	inputs []string
	passes func(input string) bool // it got through
}

const hostileYAML = `
http: { allow_hosts: ["api.example.com", "*.tenants.example.com", "mysite.io:8443", "10.0.0.5:8080", "localhost:9000"] }
limits: { api: { rate: 10/1s }, account: { rate: 5/1s, key: payload.account } }
jobs: { "http:request": { limits: [api] }, "x:": { limits: [account] } }
`

// TestHostileInputs: hosts, addresses, ids, headers, bodies, names, values and
// configurations of somebody who wants in; none gets through. Redirects and tokens are
// in TestHostileRedirects and in package admin.
func TestHostileInputs(t *testing.T) {
	cfg, err := config.Parse("config.yaml", []byte(hostileYAML))
	if err != nil {
		t.Fatal(err)
	}
	check, err := NewHTTPCheck(cfg)
	if err != nil {
		t.Fatal(err)
	}
	payload := func(fields map[string]any) []byte {
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	byURL := func(url string) bool { return check.Check(payload(map[string]any{"url": url})) == nil }
	byHeader := func(header string) bool {
		name, value, _ := strings.Cut(header, ": ")
		return check.Check(payload(map[string]any{"url": "https://api.example.com/", "headers": map[string]string{name: value}})) == nil
	}
	if !byURL("https://api.example.com/v1") || !byURL("http://a.tenants.example.com/") || !byHeader("X-A: b") {
		t.Fatal("what is allowed is refused")
	}
	total := 0
	for _, h := range []hostile{
		{"hosts", []string{
			"https://evil.example/", "https://api.example.com.evil.example/", "https://evil.example/api.example.com", "https://api.example.com@evil.example/",
			"https://api.example.com:pw@evil.example/", "https://evil.example#api.example.com", "https://evil.example?api.example.com", `https://evil.example\@api.example.com/`,
			"https://xapi.example.com/", "https://api-example.com/", "https://example.com/", "https://tenants.example.com/", "https://.tenants.example.com/",
			"https://a..tenants.example.com/", "https://api.example.com%2eevil.example/", "https://api.example.com%00.evil.example/", "https://api.example.com%20evil/",
			"https://api.example.com\u3002evil.example/", "https://ap\u0131.example.com/", "https://mys\u0130te.io:8443/", "https://\u24dcysite.io:8443/", "https://api.example\uff0ecom/",
			"https://mysite.io/", "https://mysite.io:443/", "https://mysite.io:84430/", "https://mysite.io:8443x/", "https://mysite.io:-1/", "https://mysite.io:0/",
			"https:///api.example.com/", "https:api.example.com/", "//api.example.com/", "api.example.com", "/etc/passwd", "", " https://api.example.com/", "https://api.example.com /",
			"ftp://api.example.com/", "file:///etc/passwd", "gopher://api.example.com/", "javascript:alert(1)", "data:text/plain,x", "unix:///var/run/docker.sock", "HTTPS+unix://api.example.com/",
			"https://[api.example.com]/", "https://api.example.com,evil.example/", "https://api.example.com;evil.example/", "https://*.tenants.example.com/", "https://a b.tenants.example.com/",
		}, byURL},
		{"addresses", []string{
			"http://127.0.0.1/", "http://127.1/", "http://0/", "http://0.0.0.0/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.1/", "http://0177.0.0.1/", "http://017700000001/",
			"http://[::1]/", "http://[::]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/", "http://[0:0:0:0:0:ffff:10.0.0.6]/", "http://[64:ff9b::7f00:1]/", "http://[fe80::1]/", "http://[fe80::1%25eth0]/",
			"http://[fd00::1]/", "http://10.0.0.5/", "http://10.0.0.5:80/", "http://10.0.0.6:8080/", "http://172.16.0.1/", "http://192.168.1.1/", "http://169.254.169.254/latest/meta-data/", "http://100.64.0.1/",
			"http://[2002:7f00:1::]/", "http://224.0.0.1/", "http://255.255.255.255/", "http://localhost/", "http://localhost:9001/", "http://localhost.:9001/", "http://metadata.google.internal/", "http://8.8.8.8/",
		}, byURL},
		{"headers", []string{
			"Host: evil.example", "host: evil.example", "HOST: evil.example", "Content-Length: 0", "Transfer-Encoding: chunked", "Connection: close", "Upgrade: h2c", "Te: trailers", "Trailer: X", "Proxy-Connection: x", "Keep-Alive: 1",
			"X-A: b\r\nHost: evil.example", "X-A: b\nX-B: c", "X-A: \x00", "X-A: \x1b[2J", "X A: b", "X-A\r\nHost: b", "X-Ä: b", ": b", "X:A: b\x7f", "X-A\x00: b",
		}, byHeader},
		{"methods and bodies", []string{
			`{"method":"CONNECT","url":"https://api.example.com/"}`, `{"method":"connect","url":"https://api.example.com/"}`, `{"method":"GET / HTTP/1.1\r\nX: y","url":"https://api.example.com/"}`, `{"method":"G T","url":"https://api.example.com/"}`,
			`{"url":"https://api.example.com/","body":{"a":1}}`, `{"url":"https://api.example.com/","body":[1]}`, `{"url":"https://api.example.com/","ulr":"x"}`, `{"url":["https://api.example.com/"]}`, `{"url":"https://api.example.com/","headers":["a"]}`,
			`{"url":"https://api.example.com/","headers":{"A":1}}`, `null`, `[]`, `"https://api.example.com/"`, `{"url":"https://api.example.com/"`, ``, "\xff",
		}, func(text string) bool { return check.Check([]byte(text)) == nil }},
		{"ids", []string{
			"a\nb", "a\rb", "a\tb", "\x00", "\x1b[31mred", "\x7f", " ", "\u0085", "\u009b31m", "a\u0000b",
		}, func(id string) bool {
			return producer.Job{Type: "x", ID: id}.Validate() == nil
		}},
		{"job lines", []string{
			`{"type":"x","type":"y"}`, `{"Type":"x"}`, `{"type":"x","id":"a","id":"b"}`, `{"type":"x"}{"type":"y"}`, `{"type":""}`, `{"type":null}`, `{"type":["x"]}`, `{"type":"x","max_retry":-1}`, `{"type":"x","max_retry":1e400}`,
			`{"type":"x","timeout":"-1s"}`, `{"type":"x","timeout":"0.5s"}`, `{"type":"x","timeout":9}`, `{"type":"x","process_in":"1000000h"}`, `{"type":"x","headers":{"jobthrottle-max-retry":"9"}}`, `{"type":"x","queue":" "}`, `{"type":"x","id":"\u001b[2J"}`,
			"{\"type\":\"x\",\"id\":\"\xff\"}", `{"type":"x","payload":}`, `[]`, `"x"`, `{"type":"x","__proto__":{}}`,
		}, func(line string) bool {
			_, err := producer.ParseJob([]byte(line))
			return err == nil
		}},
		{"names of limits", []string{
			"", "a\nb", "a\x00", "\x1b[2J", "{", "}", "{}", "{a}{b}", "}a{", "{{a}}", "\xff", strings.Repeat("a", 1<<16), "asynq:{default}:pending", "asynq:x", "jobthrottle:workers", "{jobthrottle:parked}:x",
		}, func(name string) bool {
			if owner, _ := limitname.Reserved(name); owner != "" {
				return false
			}
			return limitname.Check(name) == nil
		}},
		{"values of keys", []string{
			"", "{stripe}", "a{b}", "}", "a\nb", "a\x00", "\x1b[2J", "\xff", strings.Repeat("a", 1<<16), "\u0085",
		}, func(value string) bool {
			_, err := limitname.OfValue("account", value)
			return err == nil
		}},
		{"values that name others' keys", []string{
			"api:permits", "x:clients", ":", "%", "%3A", "a:b:c", "stripe:account:queues", "%25",
		}, func(value string) bool { // the name it makes has one colon, and is that of no other value
			name, err := limitname.OfValue("account", value)
			_, rest, _ := strings.Cut(name, ":")
			return err != nil || strings.Contains(rest, ":") || rest == value || limitname.Value(rest) != value
		}},
		{"configurations", []string{
			"http: { allow_hosts: [\"*\"] }", "http: { allow_hosts: [\"*.\"] }", "http: { allow_hosts: [\"\"] }", "http: { allow_hosts: [\"https://api.example.com\"] }", "http: { allow_hosts: [\"api.example.com/path\"] }", "http: { allow_hosts: [\"2130706433\"] }",
			"http: { allow_hosts: [\"*.10.0.0.1\"] }", "http: { allow_hosts: [\"a@b.example\"] }", "http: { allow_hosts: [\"mys\u0130te.io\"] }", "http: { allow_hosts: [\"10.0.0.0/8\"] }",
			"limits: { \"asynq:x\": { rate: 1/1s } }", "limits: { \"jobthrottle:x\": { rate: 1/1s } }", "limits: { \"{jobthrottle:x}\": { rate: 1/1s } }", "limits: { jobthrottle: { rate: 1/1s, key: queue } }", "limits: { asynq: { rate: 1/1s, key: queue } }",
			"limits: { api: { rate: 1/1s, key: queue }, \"api:vip\": { rate: 1/1s } }", "limits: { \"a\\nb\": { rate: 1/1s } }", "limits: { a: { rate: 1/1s, key: payload..x } }", "limits: { a: { rate: 99999999999999999999/1s } }", "limits: { a: { rate: 1/0s } }",
			"redis: { addrs: [\"redis://u:p@h:1\"] }", "redis: { adrs: [] }", "admin: { addr: \"here\" }", "redis: &a { addrs: *a }", "limits: { a: { rate: 1/1s }, a: { rate: 2/1s } }", "jobs: { x: { limits: [b] } }",
		}, func(text string) bool {
			_, err := config.Parse("config.yaml", []byte(text))
			return err == nil
		}},
	} {
		total += len(h.inputs)
		for _, input := range h.inputs {
			if h.passes(input) {
				t.Errorf("%s: %.80q gets through", h.kind, input)
			}
		}
	}
	t.Logf("%d inputs", total)
	if total < 150 {
		t.Errorf("only %d inputs", total)
	}
}

// TestHostileRedirects: an API, or who has taken it over, leads jobs elsewhere. No
// request comes where jobs may not go, and what another allowed origin gets has neither
// the job's secrets nor its body.
func TestHostileRedirects(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var stolen []string // what the other origin got
	note := func(r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		stolen = append(stolen, fmt.Sprintf("%s %s %v %s", r.Method, r.URL, r.Header, body))
	}
	victim := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { note(r) }))
	t.Cleanup(victim.Close)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { note(r) }))
	t.Cleanup(other.Close)
	victimPort, otherHost := victim.URL[strings.LastIndex(victim.URL, ":")+1:], other.Listener.Addr().String()
	locations := []string{
		victim.URL, victim.URL + "/?s=1", "//127.0.0.1:" + victimPort, "http://localhost:" + victimPort, "http://[::ffff:127.0.0.1]:" + victimPort, "http://2130706433:" + victimPort,
		"http://0x7f000001:" + victimPort, "http://0177.0.0.1:" + victimPort, "http://127.1:" + victimPort, "http://0:" + victimPort, "http://u:p@127.0.0.1:" + victimPort,
		"http://169.254.169.254/", "http://[::1]:" + victimPort, "file:///etc/passwd", "gopher://127.0.0.1:" + victimPort, "javascript:alert(1)", "http://\x7f/", "http://[bad/", "ftp://127.0.0.1:" + victimPort,
		"http://127.0.0.1.:" + victimPort, "http://mys\u0130te.io:" + victimPort,
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var i, status int
		if _, err := fmt.Sscanf(r.URL.Path, "/%d/%d", &status, &i); err != nil {
			return
		}
		if i < len(locations) {
			w.Header().Set("Location", locations[i])
		} else {
			w.Header().Set("Location", other.URL+"/")
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(api.Close)
	f := newFleet(t, fmt.Sprintf("http: { allow_hosts: [%q, %q] }\nlog: { level: error }\n", api.Listener.Addr().String(), otherHost))
	jobs := 0
	enqueue := func(method string, status, i int) {
		t.Helper()
		body := ""
		if method == http.MethodPost {
			body = "s3cret-body"
		}
		payload, err := json.Marshal(HTTPRequest{Method: method, URL: fmt.Sprintf("%s/%d/%d", api.URL, status, i), Headers: map[string]string{"Authorization": "s3cret", "X-Api-Key": "s3cret", "Cookie": "s3cret"}, Body: body})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.client.Enqueue(asynq.NewTask(HTTPTaskType, payload), asynq.TaskID(fmt.Sprint("job", jobs)), asynq.MaxRetry(0)); err != nil {
			t.Fatal(err)
		}
		jobs++
	}
	for i := range locations {
		enqueue(http.MethodGet, http.StatusFound, i)
		enqueue(http.MethodPost, http.StatusTemporaryRedirect, i)
	}
	f.work(func(context.Context, *asynq.Task) error { return nil })
	f.awaitThat(20*time.Second, func() (bool, string) {
		info := f.queue()
		return info.Archived == jobs, fmt.Sprintf("%+v", info)
	})
	mu.Lock()
	if len(stolen) > 0 {
		t.Errorf("it got %q", stolen)
	}
	mu.Unlock()
	archived := jobs
	for _, status := range []int{http.StatusTemporaryRedirect, http.StatusPermanentRedirect} { // both want the body again
		enqueue(http.MethodPost, status, len(locations))
	}
	f.awaitThat(20*time.Second, func() (bool, string) {
		info := f.queue()
		return info.Archived == archived+2, fmt.Sprintf("%+v", info)
	})
	mu.Lock()
	if len(stolen) > 0 {
		t.Errorf("with the body, the other origin got %q", stolen)
	}
	mu.Unlock()
	enqueue(http.MethodPost, http.StatusSeeOther, len(locations)) // becomes a GET without the body
	enqueue(http.MethodGet, http.StatusTemporaryRedirect, len(locations))
	f.awaitThat(20*time.Second, func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return len(stolen) == 2, fmt.Sprint(stolen)
	})
	for _, got := range stolen {
		if strings.Contains(got, "s3cret") {
			t.Errorf("the other origin got %s", got)
		}
	}
}
