package hiddenapi_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/internal/hiddenapi"
	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client asks a stand-in over real HTTP, and reads what it says.
type client struct {
	t      *testing.T
	url    string
	preset httplimit.Preset
	http   http.Client
}

func start(t *testing.T, a *hiddenapi.API, preset string) *client {
	t.Helper()
	s, err := hiddenapi.Start(a)
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	c := &client{t: t, url: s.URL(), http: http.Client{Transport: base}}
	if preset != "" {
		if c.preset, err = httplimit.FindPreset(preset); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *client) do(method, path string) (*http.Response, httplimit.Report, string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url+path, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	r := httplimit.Read(resp, c.preset)
	if r.Ignored > 0 {
		c.t.Errorf("%d values of %v were ignored", r.Ignored, resp.Header)
	}
	return resp, r, string(body)
}

// ok asks n times, and expects to be served.
func (c *client) ok(n int, path string) (last httplimit.Report) {
	c.t.Helper()
	for range n {
		resp, r, body := c.do("GET", path)
		if resp.StatusCode != 200 || r.Refused {
			c.t.Fatalf("answer %d, %+v: %s", resp.StatusCode, r, body)
		}
		last = r
	}
	return last
}

func preset(t *testing.T, name string, p hiddenapi.Plan) *client {
	t.Helper()
	a, err := hiddenapi.Preset(name, p)
	if err != nil {
		t.Fatal(err)
	}
	return start(t, a, name)
}

func TestGitHubPrimary(t *testing.T) {
	for _, status := range []int{403, 429} {
		c := preset(t, "github", hiddenapi.Plan{Permits: 5, Window: time.Hour, Status: status})
		if q := c.ok(3, "/repos").Quotas[0]; q.Name != "core" || q.Limit != 5 || q.Remaining != 2 || q.Window != time.Hour || q.Reset <= 0 || q.Reset > time.Hour+time.Second {
			t.Errorf("%+v", q)
		}
		c.ok(2, "/repos")
		resp, r, _ := c.do("GET", "/repos")
		if resp.StatusCode != status || resp.Header.Get("x-ratelimit-remaining") != "0" || resp.Header.Get("Retry-After") != "" {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
		if !r.Refused || r.Limit != "core" || r.Pause < 59*time.Minute || r.Pause > time.Hour+time.Second {
			t.Errorf("%+v: want to be refused until the hour is over", r)
		}
	}
}

// A request that changes something costs five points of the secondary limit. Its
// refusal says so in words and with Retry-After; the headers speak of the other limit.
func TestGitHubSecondary(t *testing.T) {
	c := preset(t, "github", hiddenapi.Plan{Permits: 5000, Window: time.Hour, Second: 12})
	c.ok(2, "/repos")
	for range 2 {
		if resp, _, body := c.do("POST", "/issues"); resp.StatusCode != 200 {
			t.Fatal(body)
		}
	}
	resp, r, body := c.do("POST", "/issues")
	if resp.StatusCode != 403 || !strings.Contains(body, "secondary rate limit") || resp.Header.Get("x-ratelimit-remaining") != "4996" {
		t.Errorf("%d %v %s", resp.StatusCode, resp.Header, body)
	}
	if !r.Refused || r.Pause < 59*time.Second || r.Pause > time.Minute {
		t.Errorf("%+v: want to be refused for a minute", r)
	}
}

func TestStripe(t *testing.T) {
	c := preset(t, "stripe", hiddenapi.Plan{Permits: 10, Window: time.Hour, Second: 4})
	if r := c.ok(4, "/v1/charges"); len(r.Quotas) != 0 {
		t.Errorf("it tells limits: %+v", r)
	}
	resp, r, _ := c.do("GET", "/v1/charges")
	if resp.StatusCode != 429 || !r.Refused || r.Limit != "endpoint-rate" || r.Pause != 0 {
		t.Errorf("%d %+v", resp.StatusCode, r)
	}
	c.ok(6, "/v1/customers")
	if _, r, _ = c.do("GET", "/v1/customers"); !r.Refused || r.Limit != "global-rate" {
		t.Errorf("%+v", r)
	}
}

func TestOpenAI(t *testing.T) {
	c := preset(t, "openai", hiddenapi.Plan{Permits: 60, Window: time.Hour, Second: 1000})
	r := c.ok(1, "/v1/responses?tokens=400")
	if len(r.Quotas) != 2 {
		t.Fatalf("%+v", r)
	}
	if q := r.Quotas[0]; q.Name != "requests" || q.Limit != 60 || q.Remaining != 59 || q.Reset <= 0 || q.Reset > time.Minute {
		t.Errorf("%+v", q)
	}
	if q := r.Quotas[1]; q.Unit != httplimit.Tokens || q.Limit != 1000 || q.Remaining < 600 || q.Remaining > 601 {
		t.Errorf("%+v", q)
	}
	c.ok(1, "/v1/responses?tokens=600")
	resp, r, body := c.do("GET", "/v1/responses?tokens=600")
	if resp.StatusCode != 429 || !r.Refused || !strings.Contains(body, "rate_limit_exceeded") {
		t.Errorf("%d %+v %s", resp.StatusCode, r, body)
	}
}

func TestShopify(t *testing.T) {
	c := preset(t, "shopify", hiddenapi.Plan{Permits: 40, Window: 20 * time.Hour})
	if q := c.ok(32, "/admin/products.json").Quotas[0]; q.Limit != 40 || q.Remaining != 8 || q.Window != 20*time.Second || q.Reset != 16*time.Second {
		t.Errorf("%+v", q)
	}
	c.ok(8, "/admin/products.json")
	resp, r, _ := c.do("GET", "/admin/products.json")
	if resp.StatusCode != 429 || resp.Header.Get("X-Shopify-Shop-Api-Call-Limit") != "40/40" || !r.Refused || r.Pause != 2*time.Second {
		t.Errorf("%d %v %+v", resp.StatusCode, resp.Header, r)
	}
}

func TestSlack(t *testing.T) {
	c := preset(t, "slack", hiddenapi.Plan{Permits: 3, Window: time.Minute})
	c.ok(3, "/api/users.list")
	resp, r, body := c.do("GET", "/api/users.list")
	if resp.StatusCode != 429 || !strings.Contains(body, "ratelimited") || !r.Refused || r.Pause < 59*time.Second || r.Pause > time.Minute {
		t.Errorf("%d %+v %s", resp.StatusCode, r, body)
	}
}

// Announced as the IETF wants it, a limit and its change are read from one response.
func TestIETF(t *testing.T) {
	l, err := hiddenapi.NewLimit(hiddenapi.Sliding, 5, time.Hour, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := hiddenapi.New(hiddenapi.IETF(), hiddenapi.Rule{Name: "hourly", Limit: l})
	c := start(t, a, "")
	if q := c.ok(2, "/").Quotas[0]; q.Name != "hourly" || q.Limit != 5 || q.Window != time.Hour || q.Remaining != 3 {
		t.Errorf("%+v", q)
	}
	a.SetQuota("hourly", 2)
	if _, r, _ := c.do("GET", "/"); !r.Refused || r.Limit != "hourly" || r.Pause < 59*time.Minute || r.Quotas[0].Limit != 2 || r.Quotas[0].Remaining != 0 {
		t.Errorf("%+v", r)
	}
}

// A hidden limit says nothing; an API that fails counts nothing.
func TestHidden(t *testing.T) {
	l, err := hiddenapi.NewLimit(hiddenapi.Sliding, 2, time.Hour, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := hiddenapi.NewHidden(l)
	c := start(t, a, "")
	c.ok(1, "/")
	a.Fail(500)
	if resp, r, _ := c.do("GET", "/"); resp.StatusCode != 500 || r.Refused {
		t.Errorf("%d %+v", resp.StatusCode, r)
	}
	a.Fail(0)
	c.ok(1, "/")
	resp, r, _ := c.do("GET", "/")
	if resp.StatusCode != 429 || !r.Refused || r.Pause != 0 || len(r.Quotas) != 0 {
		t.Errorf("%d %+v", resp.StatusCode, r)
	}
	if got, want := a.Report(), (hiddenapi.Report{Accepted: 2, Refused: 1, Failed: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestNoStandIn(t *testing.T) {
	for _, name := range httplimit.Presets() {
		if _, err := hiddenapi.Preset(name, hiddenapi.Plan{Permits: 1, Window: time.Second}); err != nil {
			t.Error(err)
		}
	}
	if _, err := hiddenapi.Preset("gitlab", hiddenapi.Plan{Permits: 1, Window: time.Second}); err == nil {
		t.Error("a stand-in for gitlab")
	}
}
