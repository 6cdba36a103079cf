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

// TestHostileTexts: as a job's id, type and queue, as a value of a key, and in
// what is asked, each of them stands in what the address answers and does nothing.
func TestHostileTexts(t *testing.T) {
	s := newSite(t, 1, `
limits: { api: { rate: 1/1h, key: payload.account } }
jobs: { "http:request": { limits: [api], hold: 0 } }
http: { allow_hosts: ["$API"] }
`, token)
	client := asynq.NewClientFromRedisClient(s.rdb)
	for name, text := range map[string]string{
		"line feed": "a\nFORGED", "carriage return": "a\rFORGED", "next line": "a\u0085FORGED", "line separator": "a\u2028FORGED",
		"paragraph separator": "a\u2029FORGED", "clear": "\x1b[2J", "title": "\x1b]0;title\x07", "link": "\x1b]8;;http://evil.example\x1b\\a",
		"C1": "\u009b2J", "bell": "\a", "backspace": "abc\b\b", "delete": "a\x7f", "null": "a\x00b", "right to left": "\u202eelif",
		"isolate": "\u2066x\u2069", "marks": "\u200fx\u200e\u061c", "tab": "a\tb", "page": `<img src=x onerror=alert(1)>`, "script": `</script><script>alert(1)</script>`,
		"quotes": `"'` + "`", "metric": "a\"} 1\njobthrottle_redis_up 7\n", "template": "${7*7}{{7*7}}", "header": "a\r\nSet-Cookie: x=y",
	} {
		if _, err := client.Enqueue(asynq.NewTask("type "+text, nil), asynq.TaskID("id "+text), asynq.Queue("queue "+strings.ToLower(text)), asynq.ProcessIn(time.Hour)); err != nil {
			t.Fatal(err)
		}
		query, segment := url.QueryEscape, url.PathEscape
		for _, a := range []asked{
			{method: http.MethodGet, path: "/api/explain?task=" + query("id "+text)},
			{method: http.MethodGet, path: "/api/explain?task=" + query("none "+text)},
			{method: http.MethodGet, path: "/api/explain?task=x&queue=" + query(text)},
			{method: http.MethodGet, path: "/api/overview"}, {method: http.MethodGet, path: "/metrics"}, {method: http.MethodGet, path: "/" + segment(text)},
			{path: "/api/limits/" + segment(text) + "/pause", body: `{"for": "1m"}`},
			{path: "/api/limits/api:" + segment(text) + "/rate", body: `{"rate": "1/1s"}`},
			{path: "/api/limits/api:acme/pause", body: `{"for": ` + quoted(text) + `}`},
			{path: "/api/limits/api:acme/rate", body: `{"rate": ` + quoted(text) + `}`},
			{path: "/api/limits/api:acme/rate", body: `{` + quoted(text) + `: 1}`},
		} {
			status, body := s.ask(a)
			forged := strings.Contains(body, "\nFORGED") || strings.Contains(body, "\njobthrottle_redis_up 7")
			if forged || strings.ContainsFunc(body, func(r rune) bool {
				return r != '\n' && (unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control))
			}) {
				t.Errorf("%s: %s: %d %q", name, a.path, status, body)
			}
			if strings.HasPrefix(a.path, "/api/") && !json.Valid([]byte(body)) {
				t.Errorf("%s: %s: %d, no JSON: %q", name, a.path, status, body)
			}
			if strings.HasPrefix(a.path, "/api/explain?task=id") && status != http.StatusOK {
				t.Errorf("%s: %s: %d %q", name, a.path, status, body)
			}
		}
	}
}

func quoted(text string) string {
	line, _ := json.Marshal(text) // a string always is
	return string(line)
}
