package httplimit

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// maxQuota is the largest rate a limiter can have.
	maxQuota = math.MaxUint32
	// maxWindow is the longest interval a limiter can have.
	maxWindow = 365 * 24 * time.Hour
	// maxField and maxQuotas bound what one response can cost its reader.
	maxField, maxQuotas = 4096, 16
)

// Report is what a response says about the limits of its API. [Read] returns it.
type Report struct {
	// Refused: the API refused the request because of a limit on the rate of
	// requests. A 5xx, a timeout, and a refusal for another reason, such as too
	// many requests at the same time, say nothing about a rate.
	Refused bool
	// Limit is the API's name for the limit that refused; empty if the response
	// does not say.
	Limit string
	// Pause is how long the API asks its clients to stay away: zero if it does
	// not ask. The caller bounds it.
	Pause time.Duration
	// Quotas are the limits that the response tells, at most 16.
	Quotas []Quota
	// Ignored counts the values that were malformed or absurd: they had no effect.
	Ignored int
}

// Units of quotas. An API may have others.
const (
	Requests           = "requests"
	Tokens             = "tokens"
	ContentBytes       = "content-bytes"
	ConcurrentRequests = "concurrent-requests"
)

// Quota is one limit of an API, as far as a response tells it.
type Quota struct {
	// Name is what the API calls it, "" if it has only one limit.
	Name string
	// Unit is what it counts: Requests, Tokens or another word of the API.
	Unit string
	// Partition tells quotas apart if callers have a quota each. It can be any bytes.
	Partition string
	// Limit is how many units may be used in a Window, 1 to 2^32 - 1. Zero: the
	// response does not say.
	Limit int64
	// Window is at most 365 days. Zero: neither the response nor the preset says.
	Window time.Duration
	// Remaining is how many units are left, never more than a known Limit.
	// Negative: the response does not say.
	Remaining int64
	// Reset is the time until the quota is whole again, or, in the words of the
	// IETF draft, within which no more than Remaining can be used. Negative: the
	// response does not say.
	Reset time.Duration
}

// Read returns what resp says about the limits of its API. It reads only headers, never the body:
//
//   - Retry-After
//   - RateLimit-Policy and RateLimit, as in draft-ietf-httpapi-ratelimit-headers-11, and policies
//     without a name, as in its versions up to 06
//   - what the preset's API documents; without a preset, RateLimit-Limit, RateLimit-Remaining,
//     RateLimit-Reset, or the same with X- before them
//
// Whatever a server sends, every field of the [Report] is within its bounds: numbers that are too
// large are lowered to them; everything else that is malformed or absurd (a limit of 0, a
// negative number, a time in 1970) is ignored and counted. Times are measured from the response's
// own Date.
func Read(resp *http.Response, p Preset) Report {
	r := read(resp, p)
	r.judge(p)
	return r.Report
}

// read reads the headers, and does not judge what they mean.
func read(resp *http.Response, p Preset) *reader {
	r := &reader{header: resp.Header, status: resp.StatusCode}
	date, err := http.ParseTime(r.header.Get("Date"))
	r.date, r.dated = date, err == nil
	r.readFields()
	if p.read != nil {
		p.read(r, p)
	} else if r.readTrio("RateLimit-", p, r.secondsOrUnix) == nil {
		r.readTrio("X-RateLimit-", p, r.secondsOrUnix)
	}
	r.bound()
	return r
}

// reader is the state of reading one response.
type reader struct {
	Report
	header http.Header
	status int
	date   time.Time
	dated  bool
}

// bound keeps what was read within the bounds that Quota promises.
func (r *reader) bound() {
	if extra := len(r.Quotas) - maxQuotas; extra > 0 {
		r.Ignored += extra
		r.Quotas = r.Quotas[:maxQuotas]
	}
	for i := range r.Quotas {
		q := &r.Quotas[i]
		q.Limit = min(q.Limit, maxQuota)
		q.Window = min(q.Window, maxWindow)
		q.Reset = min(q.Reset, maxWindow)
		q.Remaining = min(q.Remaining, maxQuota)
		if q.Limit > 0 {
			q.Remaining = min(q.Remaining, q.Limit)
		}
	}
}

// judge decides what the response means.
func (r *reader) judge(p Preset) {
	refused := p.refused
	if refused == nil {
		refused = refusedIf429
	}
	r.Refused = refused(r)
	if q, ok := r.exhausted(); ok && r.Refused && r.Limit == "" {
		r.Limit = q.Name
	}
	if !r.Refused && !asksToStayAway(r.status) {
		return
	}
	d, ok := r.pause(p)
	if r.Refused && (!ok || d == 0) { // to come back at once is no answer to a refusal
		d = p.Backoff
	}
	r.Pause = d
}

// exhausted returns a quota of which nothing is left, if there is one; of several, the one that
// takes longest to reset.
func (r *reader) exhausted() (found Quota, ok bool) {
	for _, q := range r.Quotas {
		if q.Remaining == 0 && (!ok || q.Reset > found.Reset) {
			found, ok = q, true
		}
	}
	return found, ok
}

// pause returns how long a response that refuses asks its client to stay away, and whether it
// says so.
func (r *reader) pause(p Preset) (time.Duration, bool) {
	if s := r.header.Get("Retry-After"); s != "" {
		if d, ok := parseRetryAfter(s, r.date, r.dated); ok {
			return d, true
		}
		if d, ok := parseDecimalSeconds(s); ok && p.decimalRetryAfter {
			return d, true
		}
		r.Ignored++
	}
	longest := time.Duration(-1)
	for _, q := range r.Quotas {
		if q.Remaining <= 0 && !p.resetIsGradual { // none left, or it does not say
			longest = max(longest, q.Reset)
		}
	}
	return max(longest, 0), longest >= 0
}

func asksToStayAway(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable
}

func refusedIf429(r *reader) bool { return r.status == http.StatusTooManyRequests }

// number reads the digits of a header. It returns -1 if the header is absent or ignored.
func (r *reader) number(name string) int64 {
	s := r.header.Get(name)
	if s == "" {
		return -1
	}
	n, ok := parseDigits(s)
	if !ok {
		r.Ignored++
		return -1
	}
	return n
}

// limit reads a header that says how much is allowed. It returns 0 if the header is absent or
// ignored. A 0 is ignored, too: there is no API that may not be asked at all.
func (r *reader) limit(name string) int64 {
	n := r.number(name)
	if n == 0 {
		r.Ignored++
	}
	return max(n, 0)
}

// time reads a header with parse. It returns -1 if the header is absent or ignored.
func (r *reader) time(name string, parse func(string) (time.Duration, bool)) time.Duration {
	s := r.header.Get(name)
	if s == "" {
		return -1
	}
	d, ok := parse(s)
	if !ok {
		r.Ignored++
		return -1
	}
	return d
}

// named returns the quota of this name and partition, nil if there is none.
func (r *reader) named(name, partition string) *Quota {
	i := slices.IndexFunc(r.Quotas, func(q Quota) bool { return q.Name == name && q.Partition == partition })
	if i < 0 {
		return nil
	}
	return &r.Quotas[i]
}

// parseDigits reads digits and nothing else.
func parseDigits(s string) (int64, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" { // ParseInt would accept a sign
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// parseDecimalSeconds reads digits with one point among them.
func parseDecimalSeconds(s string) (time.Duration, bool) {
	whole, fraction, _ := strings.Cut(s, ".")
	if _, ok := parseDigits(whole + fraction); !ok || whole == "" || len(whole) > 9 || len(fraction) > 9 {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	return time.Duration(f * float64(time.Second)), err == nil
}
