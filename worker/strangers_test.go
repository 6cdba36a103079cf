package worker

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/config"
)

// lookUp answers all lookups of names in this process with addr. Tests that use
// it do not run beside others.
func lookUp(t *testing.T, addr string) {
	t.Helper()
	theirs := net.DefaultResolver
	net.DefaultResolver = liar(t, netip.MustParseAddr(addr))
	t.Cleanup(func() { net.DefaultResolver = theirs })
}

// strangeHosts are hosts that look like mysite.io, or become it, or become
// another by one of the ways in which programs read names. All are at a port.
var strangeHosts = map[string]string{
	"dotted capital I":         "mys\u0130te.io",
	"dotted capital I, quoted": "mys%C4%B0te.io",
	"dotless small i":          "mys\u0131te.io",
	"i and a combining dot":    "mysi\u0307te.io",
	"long s":                   "my\u017fite.io",
	"long s, quoted":           "my%C5%BFite.io",
	"circled letter":           "\u24dcysite.io",
	"fullwidth letters":        "\uff4d\uff59site.io",
	"fullwidth dot":            "mysite\uff0eio",
	"ideographic dot":          "mysite\u3002io",
	"halfwidth dot":            "mysite\uff61io",
	"one dot leader":           "mysite\u2024io",
	"ideographic dot at end":   "mysite.io\u3002",
	"soft hyphen":              "my\u00adsite.io",
	"soft hyphen, quoted":      "my%C2%ADsite.io",
	"zero width joiner":        "my\u200dsite.io",
	"zero width space":         "my\u200bsite.io",
	"right-to-left override":   "my\u202esite.io",
	"sharp s":                  "my\u00dfite.io",
	"Cyrillic":                 "m\u0443site.io",
	"punycode of that":         "xn--mste-7cd1a.io",
	"punycode of dotted I":     "xn--mysite-m4c.io",
	"two dots at end":          "mysite.io..",
	"dot before":               ".mysite.io",
	"below":                    "x.mysite.io",
	"decimal address":          "2130706433",
	"short address":            "127.1",
	"hex address":              "0x7f.0.0.1",
	"octal address":            "0177.0.0.1",
	"fullwidth address":        "\uff11\uff12\uff17.0.0.1",
	"ideographic address":      "127\u30020\u30020\u30021",
	"Thai digits":              "\u0e51\u0e52\u0e57.0.0.1",
	"mapped, hex":              "[::ffff:7f00:2]",
	"compatible":               "[::127.0.0.1]",
	"translated":               "[64:ff9b::7f00:1]",
	"with a zone":              "[::1%25lo]",
	"mapped, with a zone":      "[::ffff:127.0.0.1%25lo]",
	"zone that names the host": "[::1%25mysite.io]",
	"invalid UTF-8":            "mysite%ff.io",
	"NUL":                      "mysite%00.io",
	"user name":                "mysite.io@127.0.0.2",
	"escaped slash":            "mysite.io%2f@127.0.0.2",
	"semicolon":                "mysite.io;x",
	"comma":                    "mysite.io,x",
	"underscore at end":        "mysite.io_",
}

// arrivals is an API that notes what comes to it.
type arrivals struct {
	mu    sync.Mutex
	hosts []string // that had the secret
}

func (a *arrivals) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.hosts = append(a.hosts, r.Host+" "+r.Header.Get("Authorization"))
}

func (a *arrivals) seen() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.hosts...)
}

// TestStrangeHostsGetNothing: what passes for the host on the list is the host
// on the list. All names lead to the API, so that whatever is dialled arrives.
func TestStrangeHostsGetNothing(t *testing.T) {
	api := &arrivals{}
	server := httptest.NewServer(api)
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	lookUp(t, "127.0.0.1")
	f := newFleet(t, fmt.Sprintf("http: { allow_hosts: [\"mysite.io:%[1]s\", \"127.0.0.1:%[1]s\"] }\nlog: { level: error }\n", port))
	send := func(id, url string) {
		payload, err := json.Marshal(HTTPRequest{URL: url, Headers: map[string]string{"Authorization": "s3cret"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.client.Enqueue(asynq.NewTask(HTTPTaskType, payload), asynq.TaskID(id), asynq.MaxRetry(5), asynq.Retention(time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
	for name, host := range strangeHosts {
		send(name, "http://"+host+":"+port+"/")
	}
	send("good", "http://MYsite.IO:"+port+"/")
	send("good, final dot", "http://mysite.io.:"+port+"/")
	f.work(nil)
	for name := range strangeHosts {
		f.awaitThat(20*time.Second, func() (bool, string) {
			info, err := f.inspector.GetTaskInfo("default", name)
			if err != nil {
				t.Fatal(err)
			}
			decided := info.State == asynq.TaskStateArchived || info.LastErr != ""
			return decided || info.State == asynq.TaskStateCompleted, fmt.Sprintf("%s is %v", name, info.State)
		})
		info, err := f.inspector.GetTaskInfo("default", name)
		if err != nil {
			t.Fatal(err)
		}
		if refused := strings.Contains(info.LastErr, "url: ") || strings.Contains(info.LastErr, "allow_hosts"); !refused {
			t.Errorf("%s: %v, error %q: want one that says what is wrong with the host", name, info.State, info.LastErr)
		}
	}
	f.awaitThat(20*time.Second, func() (bool, string) {
		q, err := f.inspector.GetQueueInfo("default")
		if err != nil {
			t.Fatal(err)
		}
		return q.Completed >= 2, fmt.Sprintf("%d of 2 good jobs done", q.Completed)
	})
	for _, got := range api.seen() {
		host, _, _ := strings.Cut(got, ":")
		if !strings.EqualFold(strings.TrimSuffix(host, "."), "mysite.io") {
			t.Errorf("a request arrived as %q", got)
		}
	}
	if n := len(api.seen()); n != 2 {
		t.Errorf("%d requests arrived, want the 2 good ones: %q", n, api.seen())
	}
}

// TestStrangeRedirectsGetNothing: the same of redirects, which a server chooses.
func TestStrangeRedirectsGetNothing(t *testing.T) {
	var mu sync.Mutex
	to, arrived := "", []string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path != "/start" {
			arrived = append(arrived, r.Host+" "+r.Header.Get("Authorization"))
			w.WriteHeader(http.StatusTeapot)
			return
		}
		w.Header()["Location"] = []string{to}
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	lookUp(t, "127.0.0.1")
	cfg := config.Default()
	cfg.HTTP.AllowHosts = []string{"mysite.io:" + port, "127.0.0.1:" + port}
	job := newTestHTTPJob(t, cfg)
	for name, host := range strangeHosts {
		mu.Lock()
		to, arrived = "http://"+host+":"+port+"/", nil
		mu.Unlock()
		err := perform(t, job, HTTPRequest{URL: "http://mysite.io:" + port + "/start", Headers: map[string]string{"Authorization": "s3cret"}})
		mu.Lock()
		if len(arrived) > 0 {
			t.Errorf("%s: arrived: %q (error %v)", name, arrived, err)
		}
		mu.Unlock()
		if err == nil || strings.Contains(err.Error(), "dial") {
			t.Errorf("%s: error %v, want a refusal before anything is dialled", name, err)
		}
	}
}
