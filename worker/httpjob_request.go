package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/hosts"
)

// HTTPRequest is the payload of an [HTTPTaskType] task, as JSON.
type HTTPRequest struct {
	// Method is any method except CONNECT. Defaults to GET.
	Method string `json:"method,omitempty"`
	// URL is absolute, http or https, of a host that http.allow_hosts names.
	// Credentials belong into Headers.
	URL string `json:"url"`
	// Headers are sent unchanged. Headers that describe the connection are refused. POST and
	// PATCH get an Idempotency-Key, the task's id, unless they have one: a task may run more
	// than once.
	Headers map[string]string `json:"headers,omitempty"`
	// Body is sent unchanged.
	Body string `json:"body,omitempty"`
}

var (
	httpFields = []string{"method", "url", "headers", "body"}

	// connectionHeaders belong to the connection, not to the request. Host is one of them: it
	// would reach hosts behind an allowed one.
	connectionHeaders = []string{
		"Connection", "Content-Length", "Host", "Keep-Alive", "Proxy-Connection",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade",
	}

	// publicHeaders describe the content. All others may be secrets.
	publicHeaders = []string{
		"Accept", "Accept-Encoding", "Accept-Language", "Content-Encoding",
		"Content-Language", "Content-Type", "User-Agent",
	}
)

// parseHTTPRequest parses a payload, or returns an *HTTPPayloadError. It refuses a field that
// nobody reads: it is probably a misspelt one.
func parseHTTPRequest(payload []byte, others []string) (r HTTPRequest, err error) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(payload, &fields) != nil {
		return r, badPayload("", "want a JSON object with url and, as needed, method, headers and body")
	}
	for _, name := range sortedKeys(fields) {
		if !slices.Contains(httpFields, name) && !slices.Contains(others, name) {
			return r, &HTTPPayloadError{Field: fmt.Sprintf("%.40s", name), unread: true,
				Reason: "unknown field: want one of " + strings.Join(slices.Concat(httpFields, others), ", ")}
		}
	}
	for _, f := range []struct {
		name string
		into any
		want string
	}{
		{"method", &r.Method, "a string"},
		{"url", &r.URL, "a string"},
		{"headers", &r.Headers, "an object of strings"},
		{"body", &r.Body, "a string; JSON in it has to be quoted"},
	} {
		if raw, ok := fields[f.name]; ok && json.Unmarshal(raw, f.into) != nil {
			return r, badPayload(f.name, "want %s", f.want)
		}
	}
	var values map[string]*string
	if json.Unmarshal(fields["headers"], &values) == nil {
		for _, name := range sortedKeys(values) {
			if values[name] == nil {
				return r, badPayload("headers", "the value of %.40q is null: want a string", name)
			}
		}
	}
	return r, nil
}

// build returns the request, or an *HTTPPayloadError.
func (r HTTPRequest) build(ctx context.Context) (*http.Request, error) {
	method := strings.ToUpper(r.Method)
	if method != "" && !isToken(method) || method == http.MethodConnect {
		return nil, badPayload("method", "invalid method %.20q", r.Method)
	}
	req, err := http.NewRequestWithContext(ctx, method, r.URL, strings.NewReader(r.Body))
	// The error quotes the URL, which may contain secrets.
	if err != nil || req.URL.Host == "" || req.URL.Scheme != "http" && req.URL.Scheme != "https" {
		return nil, badPayload("url", "want an absolute http or https URL, such as https://api.example.com/v1")
	}
	if req.URL.User != nil {
		return nil, badPayload("url", "has a user name or password: put them into the header Authorization")
	}
	if !hosts.IsASCII(req.URL.Host) { // no list of hosts could allow it
		return nil, badPayload("url", "has a host that is not ASCII: write it as it is looked up, such as xn--bcher-kva.example")
	}
	if id, ok := asynq.GetTaskID(ctx); ok && (method == http.MethodPost || method == http.MethodPatch) {
		req.Header.Set("Idempotency-Key", id)
	}
	set := map[string]bool{}
	for _, name := range sortedKeys(r.Headers) {
		switch canonical := http.CanonicalHeaderKey(name); {
		case !isToken(name):
			return nil, badPayload("headers", "invalid name %.40q", name)
		case slices.Contains(connectionHeaders, canonical):
			return nil, badPayload("headers", "%s is not for a job to set", canonical)
		case set[canonical]:
			return nil, badPayload("headers", "%s is there twice, written in different ways", canonical)
		case strings.ContainsFunc(r.Headers[name], isControl):
			return nil, badPayload("headers", "the value of %s has control characters", canonical)
		}
		req.Header.Set(name, r.Headers[name])
		set[http.CanonicalHeaderKey(name)] = true
	}
	return req, nil
}

// keepPublicHeaders removes all headers that may be secrets.
func keepPublicHeaders(h http.Header) {
	for name := range h {
		if !slices.Contains(publicHeaders, name) {
			delete(h, name)
		}
	}
}

// origin identifies a server: scheme, host and port.
func origin(u *url.URL) string {
	return u.Scheme + "://" + hosts.Normal(u.Hostname()) + ":" + portOf(u)
}

// isToken reports whether s can be the name of a method or header (RFC 9110).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

func isControl(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }
