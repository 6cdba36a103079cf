package httplimit

import (
	"math"
	"net/http"
	"time"
)

const day = 24 * 60 * 60 // in seconds

// RetryAfter reports how long a 429 or 503 response asks its client to stay away: zero if that
// time is over already, false if the response does not say, or not in a form that can be trusted.
//
// A usable Retry-After decides: seconds, or an HTTP date. Otherwise it is the longest of:
//
//   - RateLimit, as in the IETF draft: the t of an item with r=0
//   - RateLimit-Reset: seconds, as in older versions of the draft, or the Unix time that many
//     APIs send instead. A number up to 86400, a day, is taken for seconds; one that lies within
//     a day of the response's Date for a Unix time; any other is ignored. It does not count if
//     RateLimit-Remaining says that something is left. The same headers with X- before them are
//     read if those without it have nothing usable.
//
// Dates and Unix times are measured from the response's own Date header, so the clock of this
// machine does not matter; without that header they are ignored. [Read] tells more, and knows the
// headers of some APIs.
func RetryAfter(resp *http.Response) (time.Duration, bool) {
	if !asksToStayAway(resp.StatusCode) {
		return 0, false
	}
	return read(resp, Preset{}).pause(Preset{})
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
	n, ok := parseDigits(s)
	if !ok {
		return 0, false
	}
	if n <= day {
		return time.Duration(n) * time.Second, true
	}
	return untilUnix(n, date, dated)
}

// untilUnix is the time from date to a Unix time at most a day from it.
func untilUnix(n int64, date time.Time, dated bool) (time.Duration, bool) {
	ahead := n - date.Unix() // cannot overflow: n >= 0, and the year of a date has four digits
	if !dated || ahead < -day || ahead > day {
		return 0, false
	}
	return time.Duration(max(ahead, 0)) * time.Second, true
}

// parseSeconds reads digits and nothing else, up to what a Duration holds.
func parseSeconds(s string) (int64, bool) {
	n, ok := parseDigits(s)
	return n, ok && n <= math.MaxInt64/int64(time.Second)
}
