package httplimit

import (
	"math"
	"net/http"
	"strconv"
	"time"
)

// RetryAfter reports how long a 429 or 503 response asks its client to stay
// away: zero if that time is over already, false if it does not say, or not in
// a form that can be trusted.
//
// It reads the first of these headers that has a usable value:
//
//   - Retry-After: seconds, or an HTTP date
//   - RateLimit-Reset, X-RateLimit-Reset: seconds, as the IETF draft has it, or
//     the Unix time that many APIs send instead. A number up to 86400, a day,
//     is taken for seconds; one that lies within a day of the response's Date
//     for a Unix time; any other is ignored.
//
// Dates and Unix times are measured from the response's own Date header, so the
// clock of this machine takes no part; without that header they are ignored.
func RetryAfter(resp *http.Response) (time.Duration, bool) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return 0, false
	}
	date, err := http.ParseTime(resp.Header.Get("Date"))
	dated := err == nil
	if d, ok := parseRetryAfter(resp.Header.Get("Retry-After"), date, dated); ok {
		return d, true
	}
	for _, name := range []string{"RateLimit-Reset", "X-RateLimit-Reset"} {
		if d, ok := parseReset(resp.Header.Get(name), date, dated); ok {
			return d, true
		}
	}
	return 0, false
}

// parseRetryAfter reads the value of Retry-After: seconds or an HTTP date.
func parseRetryAfter(s string, date time.Time, dated bool) (time.Duration, bool) {
	if n, ok := parseSeconds(s); ok {
		return time.Duration(n) * time.Second, true
	}
	at, err := http.ParseTime(s)
	if err != nil || !dated {
		return 0, false
	}
	return max(at.Sub(date), 0), true
}

// parseReset reads the value of RateLimit-Reset: seconds or a Unix time.
func parseReset(s string, date time.Time, dated bool) (time.Duration, bool) {
	const day = 24 * 60 * 60
	n, ok := parseSeconds(s)
	if !ok {
		return 0, false
	}
	if n <= day {
		return time.Duration(n) * time.Second, true
	}
	ahead := n - date.Unix() // cannot overflow: n > 0, and a date is within four digits of years
	if !dated || ahead < -day || ahead > day {
		return 0, false
	}
	return time.Duration(max(ahead, 0)) * time.Second, true
}

// parseSeconds reads digits and nothing else, up to what a Duration holds.
func parseSeconds(s string) (int64, bool) {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' { // ParseInt would take a sign
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n <= math.MaxInt64/int64(time.Second)
}
