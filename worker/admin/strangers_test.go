package admin_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/hibiken/asynq"
)

// TestNamesOfStrangers: what jobs and values have in them does nothing to who
// asks the address, and JSON means the same.
func TestNamesOfStrangers(t *testing.T) {
	s := newSite(t, 1, `
limits: { api: { rate: 1/1h, key: payload.account } }
jobs: { "http:request": { limits: [api], hold: 0 } }
http: { allow_hosts: ["$API"] }
`, token)
	const hostile = "a\nFORGED\x1b[2J\x7f\u009b2J\u202e\u2028"
	const value = "acme\u202e:x\u2066"
	client := asynq.NewClientFromRedisClient(s.rdb)
	if _, err := client.Enqueue(asynq.NewTask("type"+hostile, nil), asynq.TaskID("id"+hostile), asynq.ProcessIn(time.Hour)); err != nil {
		t.Fatal(err)
	}
	s.enqueue(3, "default", value)
	name := "api:" + strings.ReplaceAll(value, ":", "%3A")
	s.await(10*time.Second, func() (bool, string) {
		_, body := s.ask(asked{method: http.MethodGet, path: "/api/overview"})
		return strings.Contains(body, `"parked":2`), body
	})
	for path, want := range map[string]string{
		"/api/overview": name,
		"/api/explain?task=" + url.QueryEscape("id"+hostile):   "id" + hostile,
		"/api/explain?task=" + url.QueryEscape("none"+hostile): "",
		"/api/explain?queue=" + url.QueryEscape(hostile):       "",
	} {
		_, body := s.ask(asked{method: http.MethodGet, path: path})
		if strings.ContainsFunc(strings.TrimSuffix(body, "\n"), func(r rune) bool { return unicode.IsControl(r) || r == 0x2028 || r == 0x202e || r == 0x2066 }) {
			t.Errorf("%s acts: %q", path, body)
		}
		var all any
		if err := json.Unmarshal([]byte(body), &all); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if want != "" && !has(all, want) {
			t.Errorf("%s: no %q in %q", path, want, body)
		}
	}
	if status, body := s.ask(asked{path: "/api/limits/" + url.PathEscape(name) + "/pause", body: `{"for": "1m"}`}); status != http.StatusOK {
		t.Errorf("pause of %q: %d %s", name, status, body)
	}
}

// has reports whether decoded JSON has a text in it.
func has(v any, text string) bool {
	switch v := v.(type) {
	case string:
		return v == text
	case []any:
		for _, e := range v {
			if has(e, text) {
				return true
			}
		}
	case map[string]any:
		for _, e := range v {
			if has(e, text) {
				return true
			}
		}
	}
	return false
}
