package worker

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/asynqlimit"
	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/hosts"
	"github.com/jobthrottle/jobthrottle/internal/secrets"
	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

// HTTPTaskType is the type of tasks that the built-in job performs: one HTTP request, described
// by an [HTTPRequest]. It does not perform tasks of other types that begin with this one.
const HTTPTaskType = "http:request"

const maxRedirects = 10

// idleConns is how many connections stay open for later jobs at most, to all hosts together. With
// more slots than that, it is as many as there are slots.
const idleConns = 100

// An HTTP/2 connection that has been silent for pingAfter is asked whether it lives. If it does not
// answer within pingTimeout, it is closed. Otherwise about a hundred jobs would time out on it.
const (
	pingAfter   = 10 * time.Second
	pingTimeout = 10 * time.Second
)

// httpJob performs HTTP requests for tasks. It calls only hosts of its list, whatever the
// payload, a redirect or a name server says. It does not use the proxies that the environment
// names: through a proxy it could not tell which address it calls.
type httpJob struct {
	hosts   hostList
	fields  []string // of a payload, in addition to those of HTTPRequest
	timeout time.Duration
	agent   string         // User-Agent of requests that have none
	quotes  *secrets.Hider // errors quote what an API answers, without these secrets; nil: they do not
	base    *http.Transport
}

// newHTTPJob returns the job for a valid configuration. Payloads may have these fields in
// addition to their own, for limits and costs. APIs see the id of the worker as part of the
// User-Agent.
func newHTTPJob(cfg *config.Config, fields []string, id string) (*httpJob, error) {
	allowed, err := hosts.Parse(cfg.HTTP.AllowHosts)
	if err != nil {
		return nil, err
	}
	slots := 0
	for _, p := range cfg.Pools {
		slots += p.Concurrency
	}
	timeout := time.Duration(cfg.HTTP.Timeout)
	dialer := &guardedDialer{hosts: hostList{allowed}}
	dialer.Timeout = timeout
	var quotes *secrets.Hider
	if cfg.HTTP.KeepErrorBody {
		quotes = secrets.New(cfg.Admin.Hide)
	}
	return &httpJob{
		quotes:  quotes,
		hosts:   hostList{allowed},
		fields:  fields,
		timeout: timeout,
		agent:   "jobthrottle/" + id,
		base: &http.Transport{
			DialContext:         dialer.dial,
			ForceAttemptHTTP2:   true, // a DialContext would disable it
			TLSHandshakeTimeout: timeout,
			MaxIdleConns:        max(slots, idleConns),
			MaxIdleConnsPerHost: slots, // the default of 2 would dial again for almost every job
			IdleConnTimeout:     90 * time.Second,
			HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},

			MaxResponseHeaderBytes: maxResultHeader,
		},
	}, nil
}

// close closes the idle connections.
func (j *httpJob) close() { j.base.CloseIdleConnections() }

// ProcessTask implements asynq.Handler. It reserves the task's permits, gets a
// connection, waits for the permits and sends the request:
//
//   - 2xx: done, with an HTTPResult as the task's result
//   - 429 or 503 that says when to try again: the limits pause, the task parks
//   - what the preset of a limit calls a refusal: the same
//   - other 429: parks if a limit of the job adapts, else retried with asynq's backoff
//   - other 5xx, and network errors: retried with asynq's backoff
//   - anything else, and redirects that are not followed: permanent
//
// If the payload describes no request, or one to a host that is not allowed, the task waits:
// somebody may correct it, or the configuration.
func (j *httpJob) ProcessTask(ctx context.Context, task *asynq.Task) error {
	req, err := j.request(ctx, task)
	if err != nil {
		return err
	}
	if req.Header.Get("User-Agent") == "" {
		req.Header.Set("User-Agent", j.agent)
	}
	if err := asynqlimit.Hold(ctx); err != nil {
		return err
	}
	return j.send(req, task)
}

// request returns the request that a task describes, to a host that is allowed.
func (j *httpJob) request(ctx context.Context, task *asynq.Task) (*http.Request, error) {
	payload, err := parseHTTPRequest(task.Payload(), j.fields)
	if err != nil {
		return nil, badRequest(err)
	}
	req, err := payload.build(ctx)
	if err != nil {
		return nil, badRequest(err)
	}
	if err := j.hosts.check(req.URL); err != nil {
		return nil, blockedHost(err)
	}
	return req, nil
}

// sends reports whether ProcessTask would send a request for the task once it has its permits.
func (j *httpJob) sends(task *asynq.Task) bool {
	_, err := j.request(context.Background(), task)
	return err == nil
}

// send sends the request when the task has its permits, and converts the answer to what the
// attempt returns. The clock allows j.timeout until the connection is open, then j.timeout from
// the permit to the last byte, and the same again for each redirect. The wait for a permit has
// its own bound.
func (j *httpJob) send(req *http.Request, task *asynq.Task) error {
	attempt := req.Context()
	ctx, cancel := context.WithCancelCause(attempt)
	defer cancel(nil)
	req = req.WithContext(ctx)
	clock := time.AfterFunc(j.timeout, func() { cancel(&timeoutError{j.timeout}) })
	defer clock.Stop()
	permits := &httpPermits{clock: clock, timeout: j.timeout}
	client := http.Client{
		Transport:     locationGuard{httplimit.Transport(j.base, permits)},
		CheckRedirect: j.checkRedirect,
	}
	resp, err := client.Do(req)
	if host, ok := errors.AsType[*HTTPHostError](err); ok && !permits.used {
		return blockedHost(host) // nothing was sent
	}
	if err != nil {
		return httpFailure(req, err)
	}
	patience := drainTimeout
	defer func() {
		clock.Reset(patience)
		drain(resp.Body)
	}()

	report := observe(ctx, resp)
	switch {
	case resp.StatusCode >= 200 && resp.StatusCode < 300:
		result, err := readResult(resp)
		if err != nil {
			return httpFailure(req, err)
		}
		if !asynqlimit.Kept(attempt) {
			return nil
		}
		return result.store(attempt, task)
	case report.Refused || resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500:
		// A wait of zero is left to asynq's backoff: a task that parks for no time would come
		// back at once, forever.
		if d, ok := httplimit.RetryAfter(resp); ok && d > 0 {
			patience = refusedTimeout
			return RetryAfter(d)
		}
		if report.Refused || report.Pause > 0 {
			patience = refusedTimeout
		}
		if report.Pause > 0 { // from its preset, or from the IETF's headers
			return RetryAfter(report.Pause)
		}
		if report.Refused && asynqlimit.Adapts(ctx) {
			return &asynqlimit.RetryAfterError{} // its limit learns from that: the job has not failed, and need not wait
		}
		return j.noSuccess(resp, clock)
	}
	return permanent(j.noSuccess(resp, clock))
}

// noSuccess is the error for an answer that is no success. To read what it quotes takes no longer than drainTimeout.
func (j *httpJob) noSuccess(resp *http.Response, clock *time.Timer) error {
	e := &HTTPStatusError{Method: resp.Request.Method, Host: resp.Request.URL.Host, Status: resp.StatusCode}
	if j.quotes != nil {
		clock.Reset(drainTimeout)
		e.Body = errorBody(resp.Body, j.quotes)
	}
	return e
}

// checkRedirect applies the rules of the first request to a redirect, and does not pass on what
// was meant for one server to another. Other origins, and all servers after them, get none of
// the job's headers except those that describe the content. A body may also be secret: other
// origins get none. If the server asks for the body there, the redirect is not followed. No
// Referer is sent, because URLs contain secrets.
func (j *httpJob) checkRedirect(req *http.Request, via []*http.Request) error {
	req.Header.Del("Referer")
	if len(via) > maxRedirects { // the first of them is the job's own request
		return &redirectError{fmt.Sprintf("more than %d redirects", maxRedirects)}
	}
	before := via[len(via)-1]
	// As browsers do, net/http follows a 301 or 302 with another method or without the body: the job would be done, and not
	// what it asked for. A 303 means just that.
	changed := req.Method != before.Method || before.ContentLength > 0 && req.Body == nil
	if status := req.Response.StatusCode; changed && status != http.StatusSeeOther {
		return &redirectError{fmt.Sprintf("a redirect with status %d, after which %s would become %s without the body: call the URL to which it leads", status, before.Method, req.Method)}
	}
	if before.URL.Scheme == "https" && req.URL.Scheme == "http" {
		return &redirectError{"a redirect from https to http"}
	}
	if err := j.hosts.check(req.URL); err != nil {
		return err
	}
	first := via[0].URL
	elsewhere := origin(req.URL) != origin(first)
	for _, r := range via {
		elsewhere = elsewhere || origin(r.URL) != origin(first)
	}
	if elsewhere && req.Body != nil && req.ContentLength != 0 { // 307 and 308 send the body again
		return &redirectError{"a redirect of a request with a body to another origin"}
	}
	if elsewhere {
		keepPublicHeaders(req.Header)
	}
	return nil
}

// locationGuard replaces net/http's error about a malformed Location, which quotes all of it.
type locationGuard struct{ http.RoundTripper }

func (g locationGuard) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := g.RoundTripper.RoundTrip(req)
	if err != nil || resp.StatusCode/100 != 3 {
		return resp, err
	}
	if _, err := resp.Location(); err != nil && !errors.Is(err, http.ErrNoLocation) {
		drain(resp.Body)
		return nil, &redirectError{"a redirect to a malformed URL"}
	}
	return resp, nil
}

// httpPermits are the task's permits for httplimit.Transport. The first request uses what the
// task has reserved. A redirect, or a request that is sent again, gets permits of its own.
type httpPermits struct {
	clock   *time.Timer // stopped during waits
	timeout time.Duration
	used    bool
}

// Acquire returns when the request may be written. The number of permits is the job's own cost.
func (t *httpPermits) Acquire(ctx context.Context, _ int64) error {
	if !t.clock.Stop() {
		return &timeoutError{t.timeout}
	}
	acquire := asynqlimit.Acquire
	if t.used {
		acquire = asynqlimit.AcquireMore
	}
	t.used = true
	if err := acquire(ctx); err != nil {
		return err
	}
	t.clock.Reset(t.timeout)
	return nil
}

// Pause does nothing: the worker pauses the limits when the job returns
// RetryAfter, and knows which ones and for how long at most.
func (t *httpPermits) Pause(context.Context, time.Duration) error { return nil }
