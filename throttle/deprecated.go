package throttle

import (
	"net/http"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

// Acquirer is what Transport needs of a limit.
//
// Deprecated: use httplimit.Acquirer.
type Acquirer = httplimit.Acquirer

// Transport is httplimit.Transport.
//
// Deprecated: use httplimit.Transport.
func Transport(base http.RoundTripper, a Acquirer) http.RoundTripper {
	return httplimit.Transport(base, a)
}

// RetryAfter is httplimit.RetryAfter.
//
// Deprecated: use httplimit.RetryAfter.
func RetryAfter(resp *http.Response) (time.Duration, bool) { return httplimit.RetryAfter(resp) }
