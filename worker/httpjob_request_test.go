package worker

import (
	"errors"
	"strings"
	"testing"
)

func TestHTTPRequestPayload(t *testing.T) {
	for _, tc := range []struct {
		name, payload string
		field         string // of the error
		want          string // part of the error; empty: none
	}{
		{"least", `{"url":"https://api.example.com"}`, "", ""},
		{"all", `{"method":"put","url":"https://api.example.com/v1?a=b#c","headers":{"X-A":"b","Accept":"a, b"},"body":"{}"}`, "", ""},
		{"a limit's field", `{"url":"https://api.example.com","account":{"id":1}}`, "", ""},
		{"nothing", ``, "", "JSON object"},
		{"not JSON", `{"url":`, "", "JSON object"},
		{"array", `[]`, "", "JSON object"},
		{"trailing", `{"url":"https://api.example.com"} x`, "", "JSON object"},
		{"null", `null`, "url", "absolute"},
		{"no url", `{"method":"GET"}`, "url", "absolute"},
		{"unknown field", `{"url":"https://api.example.com","header":{}}`, "header", "want one of method, url, headers, body, account"},
		{"field in capitals", `{"URL":"https://api.example.com"}`, "URL", "unknown field"},
		{"method of another type", `{"method":1,"url":"https://api.example.com"}`, "method", "want a string"},
		{"method malformed", `{"method":"GE T","url":"https://api.example.com"}`, "method", "invalid method"},
		{"method CONNECT", `{"method":"connect","url":"https://api.example.com"}`, "method", "invalid method"},
		{"body of another type", `{"url":"https://api.example.com","body":{"a":1}}`, "body", "quoted"},
		{"headers of another type", `{"url":"https://api.example.com","headers":{"A":1}}`, "headers", "object of strings"},
		{"header name", `{"url":"https://api.example.com","headers":{"A B":"1"}}`, "headers", `invalid name "A B"`},
		{"header name empty", `{"url":"https://api.example.com","headers":{"":"1"}}`, "headers", "invalid name"},
		{"header value", `{"url":"https://api.example.com","headers":{"X-Key":"s3cret\r\nX: y"}}`, "headers", "value of X-Key"},
		{"header value null", `{"url":"https://api.example.com","headers":{"Authorization":null}}`, "headers", `the value of "Authorization" is null`},
		{"header twice", `{"url":"https://api.example.com","headers":{"X-A":"1","x-a":"2"}}`, "headers", "X-A is there twice"},
		{"header Host", `{"url":"https://api.example.com","headers":{"host":"internal"}}`, "headers", "Host is not for a job to set"},
		{"header Transfer-Encoding", `{"url":"https://api.example.com","headers":{"transfer-encoding":"x"}}`, "headers", "Transfer-Encoding is not"},
		{"url relative", `{"url":"/v1?key=s3cret"}`, "url", "absolute"},
		{"url without host", `{"url":"http:///v1?key=s3cret"}`, "url", "absolute"},
		{"url of another scheme", `{"url":"gopher://api.example.com/?s3cret"}`, "url", "absolute"},
		{"url malformed", `{"url":"https://api.example.com:s3cret/"}`, "url", "absolute"},
		{"url with control characters", `{"url":"https://api.example.com/s3cret\n"}`, "url", "absolute"},
		{"url with password", `{"url":"https://user:s3cret@api.example.com/"}`, "url", "header Authorization"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := parseHTTPRequest([]byte(tc.payload), []string{"account"})
			if err == nil {
				_, err = r.build(t.Context())
			}
			if tc.want == "" {
				if err != nil {
					t.Fatalf("refused: %v", err)
				}
				return
			}
			perr, ok := errors.AsType[*HTTPPayloadError](err)
			if !ok || perr.Field != tc.field || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one of field %q with %q", err, tc.field, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %v shows a secret", err)
			}
		})
	}
}

// FuzzHTTPRequestPayload: whatever a payload says, it is refused with a typed
// error, or is a request whose host is the one that was checked.
func FuzzHTTPRequestPayload(f *testing.F) {
	for _, s := range []string{
		`{"url":"https://api.example.com"}`, `{"url":"http://api.example.com@127.0.0.1/"}`, `{"url":"http://[::1%25a]/","body":"x"}`,
		`{"method":"POST","url":"http://a/","headers":{"A":"b"},"body":"x"}`, `{}`, `null`, `{"url":"http://a:b"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		r, err := parseHTTPRequest(payload, nil)
		if err == nil {
			req, berr := r.build(t.Context())
			if err = berr; err == nil && (req.Host != req.URL.Host || req.URL.User != nil || req.URL.Host == "") {
				t.Errorf("request to %q with Host %q", req.URL.Host, req.Host)
			}
		}
		if _, ok := errors.AsType[*HTTPPayloadError](err); err != nil && !ok {
			t.Errorf("error %T %v", err, err)
		}
	})
}
