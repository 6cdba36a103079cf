package admin_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/throttle/operate"
	"github.com/jobthrottle/jobthrottle/worker"
	"github.com/jobthrottle/jobthrottle/worker/admin"
)

const twoLimits = `
limits: { api: { rate: 100/1s }, account: { rate: 10/1s, key: payload.account } }
jobs: { "http:request": { limits: [api, account] } }
http: { allow_hosts: ["$API"] }
`

// asked is a request to the admin address, and edits what all have in common.
type asked struct {
	method string // POST if empty
	path   string
	body   string
	edit   func(*http.Request)
}

// ask sends it with the right token, unless edit changes that.
func (s *site) ask(a asked) (int, string) {
	s.tb.Helper()
	if a.method == "" {
		a.method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(s.tb.Context(), a.method, "http://"+s.addr+a.path, strings.NewReader(a.body))
	if err != nil {
		s.tb.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if a.edit != nil {
		a.edit(req)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.tb.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// state is everything that changes could touch: the keys of Redis that are limiters.
func (s *site) state() map[string]string {
	s.tb.Helper()
	state := map[string]string{}
	for l, err := range operate.NewFleet(s.rdb).Limiters(s.tb.Context(), "*") {
		if err != nil {
			s.tb.Fatal(err)
		}
		hash, err := s.rdb.HGetAll(s.tb.Context(), l.Name).Result()
		if err != nil {
			s.tb.Fatal(err)
		}
		state[l.Name] = fmt.Sprint(hash)
	}
	return state
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// TestRefused: whatever is wrong with a request, it changes nothing, and the answer says why.
func TestRefused(t *testing.T) {
	s := newSite(t, 1, twoLimits, token)
	s.awaitCreated("api")
	pause := `{"for": "1m"}`
	tests := []struct {
		name   string
		asked  asked
		status int
		why    string
	}{
		{"no token", asked{path: "/api/limits/api/pause", body: pause, edit: func(r *http.Request) { r.Header.Del("Authorization") }}, 401, "admin.token"},
		{"wrong token", asked{path: "/api/limits/api/pause", body: pause, edit: header("Authorization", "Bearer wrong")}, 401, "admin.token"},
		{"beginning of the token", asked{path: "/api/limits/api/pause", body: pause, edit: header("Authorization", "Bearer "+token[:5])}, 401, "admin.token"},
		{"empty token", asked{path: "/api/limits/api/pause", body: pause, edit: header("Authorization", "Bearer ")}, 401, "admin.token"},
		{"basic authentication", asked{path: "/api/limits/api/pause", body: pause, edit: func(r *http.Request) { r.SetBasicAuth("", token) }}, 401, "Bearer"},
		{"token in the query", asked{path: "/api/limits/api/pause?token=" + url.QueryEscape(token), body: pause, edit: header("Authorization", "")}, 401, "admin.token"},

		{"page of another site", asked{path: "/api/limits/api/pause", body: pause, edit: header("Sec-Fetch-Site", "cross-site")}, 403, "another site"},
		{"page of another port", asked{path: "/api/limits/api/pause", body: pause, edit: header("Sec-Fetch-Site", "same-site")}, 403, "another site"},
		{"origin of another site", asked{path: "/api/limits/api/pause", body: pause, edit: header("Origin", "https://evil.example")}, 403, "another site"},
		{"origin of no site", asked{path: "/api/limits/api/pause", body: pause, edit: header("Origin", "null")}, 403, "another site"},
		{"another host", asked{path: "/api/limits/api/pause", body: pause, edit: func(r *http.Request) { r.Host = "evil.example" }}, 403, "evil.example"},
		{"a host that looks like ours", asked{path: "/api/limits/api/pause", body: pause, edit: func(r *http.Request) { r.Host = "127.0.0.1.evil.example" }}, 403, "127.0.0.1.evil.example"},
		{"an address that is not loopback", asked{path: "/api/limits/api/pause", body: pause, edit: func(r *http.Request) { r.Host = "192.0.2.1:80" }}, 403, "192.0.2.1"},

		{"braces", asked{path: "/api/limits/%7Bapi%7D/pause", body: pause}, 400, "{api}"},
		{"braces in a value", asked{path: "/api/limits/account:%7Ba%7D/pause", body: pause}, 400, "braces"},
		{"control characters", asked{path: "/api/limits/api%00/pause", body: pause}, 400, "control"},
		{"a line feed in a value", asked{path: "/api/limits/account:a%0Ab/pause", body: pause}, 400, "control"},
		{"a slash", asked{path: "/api/limits/a%2Fpi/pause", body: pause}, 400, "slashes"},
		{"two segments", asked{path: "/api/limits/a/pi/pause", body: pause}, 400, "one segment"},
		{"dots", asked{path: "/api/limits/../limits/api/pause", body: pause}, 400, "segments"},
		{"encoded dots", asked{path: "/api/limits/..%2F..%2Fapi/pause", body: pause}, 400, "slashes"},
		{"no name", asked{path: "/api/limits//pause", body: pause}, 400, "segments"},
		{"a keyed limit without a value", asked{path: "/api/limits/account:/pause", body: pause}, 400, "empty"},
		{"10 kB", asked{path: "/api/limits/" + strings.Repeat("a", 10<<10) + "/pause", body: pause}, 400, "bytes"},
		{"10 kB of value", asked{path: "/api/limits/account:" + strings.Repeat("a", 10<<10) + "/pause", body: pause}, 400, "bytes"},
		{"a key of asynq", asked{path: "/api/limits/asynq:queues/pause", body: pause}, 404, "asynq:queues"},
		{"an unknown limit", asked{path: "/api/limits/other/pause", body: pause}, 404, "other"},
		{"the keyed limit itself", asked{path: "/api/limits/account/pause", body: pause}, 404, "account"},
		{"a value that no job has brought", asked{path: "/api/limits/account:nobody/rate", body: `{"rate": "5/1s"}`}, 404, "not in Redis"},

		{"no body", asked{path: "/api/limits/api/pause"}, 400, "body"},
		{"no JSON", asked{path: "/api/limits/api/pause", body: "for=1m"}, 400, "body"},
		{"a field too many", asked{path: "/api/limits/api/pause", body: `{"for": "1m", "fro": 1}`}, 400, "fro"},
		{"two values", asked{path: "/api/limits/api/pause", body: pause + pause}, 400, "more than one"},
		{"far too long", asked{path: "/api/limits/api/pause", body: `{"for": "` + strings.Repeat(" ", 1<<20) + `1m"}`}, 400, "too large"},
		{"no duration", asked{path: "/api/limits/api/pause", body: `{"for": "soon"}`}, 400, "30s"},
		{"a negative pause", asked{path: "/api/limits/api/pause", body: `{"for": "-1m"}`}, 400, "30s"},
		{"no rate", asked{path: "/api/limits/api/rate", body: `{"rate": "fast"}`}, 400, "100/1s"},
		{"a rate of nothing", asked{path: "/api/limits/api/rate", body: `{"rate": "0/1s"}`}, 400, "permits 0"},
		{"no action", asked{path: "/api/limits/api/delete", body: `{}`}, 400, "no such path"},
		{"GET", asked{method: http.MethodGet, path: "/api/limits/api/pause", body: pause}, 400, "no such path"},
		{"PUT", asked{method: http.MethodPut, path: "/api/limits/api/pause", body: pause}, 405, ""},
	}
	before := s.state()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, body := s.ask(tt.asked)
			if status != tt.status || !strings.Contains(body, tt.why) {
				t.Errorf("%d %.200q, want %d with %q", status, body, tt.status, tt.why)
			}
			if status != http.StatusMethodNotAllowed {
				var reply struct{ Error string }
				if err := json.Unmarshal([]byte(body), &reply); err != nil || reply.Error == "" {
					t.Errorf("%q is not an error in JSON: %v", body, err)
				}
			}
			if after := s.state(); !maps.Equal(after, before) {
				t.Fatalf("something has changed:\n%v\n%v", before, after)
			}
		})
	}
}

// TestReadOnly: without a token in the configuration no token is right, not even an empty one.
func TestReadOnly(t *testing.T) {
	s := newSite(t, 1, twoLimits, "")
	s.awaitCreated("api")
	before := s.state()
	for _, authorization := range []string{"", "Bearer ", "Bearer " + token} {
		status, body := s.ask(asked{path: "/api/limits/api/pause", body: `{"for": "1m"}`, edit: header("Authorization", authorization)})
		if status != http.StatusForbidden || !strings.Contains(body, "set admin.token") {
			t.Errorf("%q: %d %s", authorization, status, body)
		}
	}
	if after := s.state(); !maps.Equal(after, before) {
		t.Errorf("something has changed:\n%v\n%v", before, after)
	}
	if status, body := s.ask(asked{method: http.MethodGet, path: "/api/overview"}); status != http.StatusOK || !strings.Contains(body, `"writable":false`) {
		t.Errorf("%d %s", status, body)
	}
}

// TestChange: what is accepted is in Redis when the answer comes.
func TestChange(t *testing.T) {
	s := newSite(t, 1, twoLimits, token)
	s.awaitCreated("api")
	s.enqueue(1, "default", "a/b c")
	s.awaitCreated("account:a/b c")
	tests := []struct {
		name, path, body string
		limiter          string
		check            func(operate.FleetUsage) bool
	}{
		{"a rate", "/api/limits/api/rate", `{"rate": "50/1s"}`, "api",
			func(u operate.FleetUsage) bool { return u.Rate.String() == "50/1s" && !u.Pinned }},
		{"a rate that stays", "/api/limits/api/rate", `{"rate": "60/1s", "pin": true}`, "api",
			func(u operate.FleetUsage) bool { return u.Rate.String() == "60/1s" && u.Pinned }},
		{"another interval, with the guard that goes with it", "/api/limits/api/rate", `{"rate": "60/1m"}`, "api",
			func(u operate.FleetUsage) bool {
				return u.Rate.String() == "60/1m" && u.Pinned && u.Rate.Guard == 50*time.Millisecond
			}},
		{"a rate that no longer stays", "/api/limits/api/rate", `{"rate": "100/1s", "pin": false}`, "api",
			func(u operate.FleetUsage) bool { return u.Rate.String() == "100/1s" && !u.Pinned }},
		{"a pause", "/api/limits/api/pause", `{"for": "1m"}`, "api",
			func(u operate.FleetUsage) bool { return u.Paused > 50*time.Second && u.Paused <= time.Minute }},
		{"the end of it", "/api/limits/api/resume", `{}`, "api",
			func(u operate.FleetUsage) bool { return u.Paused == 0 }},
		{"one value of a keyed limit", "/api/limits/account:a%2Fb%20c/pause", `{"for": "1h"}`, "account:a/b c",
			func(u operate.FleetUsage) bool { return u.Paused > 50*time.Minute }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			status, body := s.ask(asked{path: tt.path, body: tt.body, edit: header("Sec-Fetch-Site", "same-origin")})
			if status != http.StatusOK {
				t.Fatalf("%d %s", status, body)
			}
			if u := s.usage(tt.limiter); !tt.check(u) {
				t.Errorf("%+v", u)
			}
		})
	}
}

// TestRateBelowWhatJobsCost: a rate below what jobs cost that wait needs a yes, and the
// answer says how many would wait. Where no job costs more, none is needed.
func TestRateBelowWhatJobsCost(t *testing.T) {
	for limiter, config := range map[string]string{"api": "", "api:acme": ", key: header.account"} {
		t.Run(limiter, func(t *testing.T) { testRateBelow(t, limiter, config) })
	}
}

// newCostly has a limit of 10/1h and what else its config says, used up, and jobs that wait
// for it and cost 2, 5 and 6.
func newCostly(t *testing.T, config string) *site {
	t.Helper()
	s := newSite(t, 1, fmt.Sprintf(`
limits: { api: { rate: 10/1h%s } }
jobs: { "http:request": { limits: [api], hold: 0, permits: header.cost } }
http: { allow_hosts: ["$API"] }
`, config), token)
	client := asynq.NewClientFromRedisClient(s.rdb)
	waiting := func(n int) {
		t.Helper()
		s.await(patience, func() (bool, string) {
			q := s.queueInfo("default")
			return q.Pending+q.Active == 0 && q.Retry == n, fmt.Sprintf("%d jobs wait, want %d", q.Retry, n)
		})
	}
	for i, cost := range []string{"10", "2", "5", "6"} { // the first one runs
		header := map[string]string{"account": "acme", "cost": cost}
		if _, err := client.Enqueue(asynq.NewTaskWithHeaders(worker.HTTPTaskType, fmt.Appendf(nil, `{"url": %q}`, s.apiURL), header)); err != nil {
			t.Fatal(err)
		}
		waiting(i)
	}
	return s
}

func testRateBelow(t *testing.T, limiter, config string) {
	s := newCostly(t, config)
	for _, tt := range []struct {
		body, why string
		status    int
		permits   int64 // afterwards
	}{
		{`{"rate": "4/1h"}`, "2 jobs that wait cost more", http.StatusConflict, 10},
		{`{"rate": "5/1h", "yes": false}`, "1 job that waits costs more", http.StatusConflict, 10},
		{`{"rate": "1/1h", "pin": true}`, "3 jobs that wait cost more", http.StatusConflict, 10},
		{`{"rate": "6/1h"}`, "", http.StatusOK, 6},
		{`{"rate": "4/1h", "yes": true}`, "", http.StatusOK, 4},
		{`{"rate": "3/1h"}`, "", http.StatusOK, 3}, // those that cost 5 and 6 cannot run anyhow
		{`{"rate": "20/1h"}`, "", http.StatusOK, 20},
	} {
		status, body := s.ask(asked{path: "/api/limits/" + limiter + "/rate", body: tt.body})
		if status != tt.status || !strings.Contains(body, tt.why) {
			t.Errorf("%s: %d %s, want %d with %q", tt.body, status, body, tt.status, tt.why)
		}
		if hinted := strings.Contains(body, `"hint":"with \"yes\": true`); hinted != (status == http.StatusConflict) {
			t.Errorf("%s: %s", tt.body, body)
		}
		if u := s.usage(limiter); u.Rate.Permits != tt.permits || u.Pinned {
			t.Errorf("%s: %s, pinned %v; want %d permits, not pinned", tt.body, u.Rate, u.Pinned, tt.permits)
		}
	}
}

// A limiter that somebody has spoilt is named, hides no other, and is mended by a rate.
func TestSpoiltLimiter(t *testing.T) {
	s := newSite(t, 1, `
limits: { api: { rate: 10/1h }, web: { rate: 20/1h }, account: { rate: 5/1h, key: payload.account } }
jobs: { "http:request": { limits: [api, web, account] } }
http: { allow_hosts: ["$API"] }
`, token)
	s.awaitCreated("api", "web")
	if err := s.rdb.HSet(t.Context(), "api", "guard", "1e300").Err(); err != nil {
		t.Fatal(err)
	}
	// shows waits for an overview, of which one is a second old at most.
	shows := func(want func(api, web admin.Limit) bool) {
		t.Helper()
		s.await(patience, func() (bool, string) {
			status, body := s.ask(asked{method: http.MethodGet, path: "/api/overview"})
			var reply admin.OverviewReply
			if err := json.Unmarshal([]byte(body), &reply); status != http.StatusOK || err != nil || len(reply.Limits) != 3 {
				return false, fmt.Sprint(status, body)
			}
			return want(reply.Limits[1], reply.Limits[2]), body
		})
	}
	shows(func(api, web admin.Limit) bool {
		return len(web.Limiters) == 1 && web.Limiters[0].Allowed == 20 && len(web.Broken) == 0 &&
			len(api.Limiters) == 0 && len(api.Broken) == 1 && strings.Contains(api.Broken[0], `"api"`) && strings.Contains(api.Broken[0], "guard")
	})
	if status, body := s.ask(asked{method: http.MethodGet, path: "/metrics"}); status != http.StatusOK || !strings.Contains(body, `jobthrottle_limit_permits{limit="web"} 20`) {
		t.Errorf("metrics: %d %s", status, body)
	}
	if status, body := s.ask(asked{path: "/api/limits/api/rate", body: `{"rate": "30/1h"}`}); status != http.StatusOK {
		t.Errorf("mend: %d %s", status, body)
	}
	shows(func(api, _ admin.Limit) bool {
		return len(api.Limiters) == 1 && api.Limiters[0].Allowed == 30 && len(api.Broken) == 0
	})
	if err := s.rdb.Set(t.Context(), "{api}:permits", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	shows(func(api, _ admin.Limit) bool {
		return len(api.Limiters) == 0 && len(api.Broken) == 1 && strings.Contains(api.Broken[0], "another type")
	})
	if status, body := s.ask(asked{path: "/api/limits/api/rate", body: `{"rate": "25/1h"}`}); status != http.StatusOK {
		t.Errorf("mend: %d %s", status, body)
	}
	shows(func(api, _ admin.Limit) bool {
		return len(api.Limiters) == 1 && api.Limiters[0].Allowed == 25 && len(api.Broken) == 0
	})
}
