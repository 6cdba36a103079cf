package httplimit

import (
	"net/http"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/internal/outcome"
)

// Observer is an [Acquirer] that wants to know what became of requests, such as a
// throttle.Limiter that adapts (SetAdapt), or a throttle.Group with one.
type Observer interface {
	Acquirer
	// Observe is told of each response that says something about a limit: when the request got
	// its permit, and a throttle.Outcome.
	Observe(sent time.Time, o outcome.Outcome)
}

// Told is the limit of requests that the API says it has. If it says several, Told is the one
// with the shortest window. Both are zero if it says none.
func (r Report) Told() (limit int64, window time.Duration) {
	for _, q := range r.Quotas {
		if (q.Unit == Requests || q.Unit == "") && q.Limit > 0 && q.Window > 0 && (window == 0 || q.Window < window) {
			limit, window = q.Limit, q.Window
		}
	}
	return limit, window
}

// ToldBy is Told for the response that the report is of. A 401 tells none: its limit is that of callers whom the
// API does not know.
func (r Report) ToldBy(resp *http.Response) (limit int64, window time.Duration) {
	if resp.StatusCode == http.StatusUnauthorized {
		return 0, 0
	}
	return r.Told()
}

// observe tells an Observer what a response says. A server that fails is no evidence of a limit.
func observe(a Acquirer, sent time.Time, resp *http.Response) {
	o, ok := a.(Observer)
	if !ok {
		return
	}
	report := Read(resp, Preset{})
	if report.Refused || resp.StatusCode < http.StatusInternalServerError {
		limit, window := report.ToldBy(resp)
		o.Observe(sent, outcome.Outcome{Refused: report.Refused, Limit: limit, Window: window})
	}
}
