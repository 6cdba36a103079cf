package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// None of these errors shows a path, query or header, nor a body unless the configuration says so
// (http.keep_error_body), because any of these may be a secret: asynq keeps errors with their task,
// and logs show them.

// HTTPPayloadError says that the payload of an [HTTPTaskType] task is not an [HTTPRequest].
type HTTPPayloadError struct {
	Field  string // empty if the payload as a whole is wrong
	Reason string

	unread bool // another configuration might read the field
}

// Error says which field is wrong, if it is one, and why.
func (e *HTTPPayloadError) Error() string {
	if e.Field == "" {
		return HTTPTaskType + ": invalid payload: " + e.Reason
	}
	return HTTPTaskType + ": invalid payload: " + e.Field + ": " + e.Reason
}

func badPayload(field, format string, args ...any) error {
	return &HTTPPayloadError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// badRequest converts an error about a payload to what the attempt returns.
func badRequest(err error) error {
	if payload, ok := errors.AsType[*HTTPPayloadError](err); ok && payload.unread {
		return &BlockedError{Reason: UnknownField, Err: err, Fix: "have a limit's key or the job's permits read the field, or correct the job"}
	}
	return &BlockedError{Reason: BadRequest, Err: err, Fix: "delete the job, and enqueue it again with that corrected"}
}

// HTTPHostError says that the task, or a redirect, leads to a host that jobs may not call.
type HTTPHostError struct {
	Host   string
	Addr   netip.Addr // what the host resolved to, if the address is the reason
	Reason string
}

// Error names the host, and says why it is not allowed.
func (e *HTTPHostError) Error() string {
	return fmt.Sprintf("%s: host %q is not allowed: %s", HTTPTaskType, e.Host, e.Reason)
}

// HTTPStatusError says that the API did not answer with success.
type HTTPStatusError struct {
	Method string // of the last request, after redirects
	Host   string
	Status int
	// Body is the first 1 KB of the answer, without what looks like a secret, if
	// http.keep_error_body is set, and empty otherwise. It is the server's text, of several lines perhaps.
	Body string
}

// Error names the method and the host, and says what the API answered.
func (e *HTTPStatusError) Error() string {
	text := fmt.Sprintf("%s: %s %s: answered %d %s", HTTPTaskType, e.Method, e.Host, e.Status, http.StatusText(e.Status))
	if e.Body != "" {
		text += ": " + e.Body
	}
	return text
}

// HTTPNetworkError says that there is no answer, or only a part of one.
type HTTPNetworkError struct {
	Method string
	Host   string
	Err    error // may quote what the server sent; Error does not
}

// Error names the method and the host, and says what happened, without text from the server.
func (e *HTTPNetworkError) Error() string {
	return fmt.Sprintf("%s: %s %s: %s", HTTPTaskType, e.Method, e.Host, plainText(e.Err))
}

// Unwrap makes errors.Is and errors.As see the cause.
func (e *HTTPNetworkError) Unwrap() error { return e.Err }

// plainText says what happened, without the parts of an unreadable answer that net/http quotes:
// they may echo the request. What a limiter says is no answer.
func plainText(err error) string {
	if limiter, ok := errors.AsType[*throttle.Error](err); ok {
		return limiter.Error()
	}
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok {
		return "the answer has a malformed header"
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the server hung up before the end of its answer"
	}
	text, _, _ := strings.Cut(err.Error(), `"`)
	return strings.TrimRight(text, " :(")
}

// timeoutError: the API took longer than http.timeout.
type timeoutError struct{ after time.Duration }

func (e *timeoutError) Error() string {
	return fmt.Sprintf("no answer within %v (http.timeout)", e.after)
}

// Is makes a timeout match the one of the standard library.
func (e *timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// redirectError: the API redirects in a way that is not followed.
type redirectError struct{ reason string }

func (e *redirectError) Error() string { return HTTPTaskType + ": not followed: " + e.reason }

// httpFailure converts an error of http.Client to what the attempt returns.
func httpFailure(req *http.Request, err error) error {
	if uerr, ok := errors.AsType[*url.Error](err); ok {
		err = uerr.Err // without the URL
	}
	if throttled, ok := errors.AsType[*ThrottledError](err); ok {
		return throttled
	}
	if blocked, ok := errors.AsType[*BlockedError](err); ok {
		return blocked
	}
	if host, ok := errors.AsType[*HTTPHostError](err); ok {
		return permanent(host)
	}
	if redirect, ok := errors.AsType[*redirectError](err); ok {
		return permanent(redirect)
	}
	if errors.Is(err, asynq.SkipRetry) {
		return err
	}
	if cause := context.Cause(req.Context()); cause != nil {
		err = cause
	}
	return &HTTPNetworkError{Method: req.Method, Host: req.URL.Host, Err: err}
}
