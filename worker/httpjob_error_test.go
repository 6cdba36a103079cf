package worker

import (
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"testing"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestHTTPNetworkErrorText: the error says what happened, and does not quote what a server sent.
func TestHTTPNetworkErrorText(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{&throttle.Error{Limiter: "api", Err: throttle.ErrExceedsRate, Detail: "5 of at most 3"}, `throttle: limiter "api": more permits than the rate allows (5 of at most 3)`},
		{fmt.Errorf("acquire: %w", &throttle.Error{Limiter: "api", Err: io.EOF}), `throttle: limiter "api": EOF`},
		{fmt.Errorf("net/http: HTTP/1.x transport connection broken: %w", io.EOF), "the server hung up before the end of its answer"},
		{textproto.ProtocolError("malformed MIME header line: s3cret"), "the answer has a malformed header"},
		{errors.New(`net/http: HTTP/1.x transport connection broken: malformed HTTP response "s3cret"`), "net/http: HTTP/1.x transport connection broken: malformed HTTP response"},
		{&timeoutError{1}, "no answer within 1ns (http.timeout)"},
	} {
		err := &HTTPNetworkError{Method: "GET", Host: "host", Err: tc.err}
		if got, want := err.Error(), "http:request: GET host: "+tc.want; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}
