package httplimit_test

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

func TestRetryAfter(t *testing.T) {
	const date = "Fri, 02 Jan 2026 03:04:05 GMT"
	at, err := http.ParseTime(date)
	if err != nil {
		t.Fatal(err)
	}
	unix := func(d time.Duration) string { return strconv.FormatInt(at.Add(d).Unix(), 10) }
	type headers map[string]string
	for _, tc := range []struct {
		name   string
		status int // 0 is 429
		h      headers
		want   time.Duration
		ok     bool
	}{
		{name: "none", h: headers{}},
		{name: "seconds", h: headers{"Retry-After": "3"}, want: 3 * time.Second, ok: true},
		{name: "503", status: 503, h: headers{"Retry-After": "3"}, want: 3 * time.Second, ok: true},
		{name: "200", status: 200, h: headers{"Retry-After": "3"}},
		{name: "301", status: 301, h: headers{"Retry-After": "3"}},
		{name: "zero", h: headers{"Retry-After": "0"}, ok: true},
		{name: "leading zeros", h: headers{"Retry-After": "007"}, want: 7 * time.Second, ok: true},
		{name: "date", h: headers{"Date": date, "Retry-After": "Fri, 02 Jan 2026 03:04:35 GMT"}, want: 30 * time.Second, ok: true},
		{name: "date in RFC 850", h: headers{"Date": date, "Retry-After": "Friday, 02-Jan-26 03:05:05 GMT"}, want: time.Minute, ok: true},
		{name: "date in the past", h: headers{"Date": date, "Retry-After": "Thu, 01 Jan 2026 03:04:05 GMT"}, ok: true},
		{name: "date without Date", h: headers{"Retry-After": "Fri, 02 Jan 2026 03:04:35 GMT"}},
		{name: "date with malformed Date", h: headers{"Date": "now", "Retry-After": "Fri, 02 Jan 2026 03:04:35 GMT"}},
		{name: "negative", h: headers{"Retry-After": "-3"}},
		{name: "signed", h: headers{"Retry-After": "+3"}},
		{name: "fraction", h: headers{"Retry-After": "1.5"}},
		{name: "word", h: headers{"Retry-After": "soon"}},
		{name: "underscores", h: headers{"Retry-After": "1_0"}},
		{name: "longest", h: headers{"Retry-After": "9223372036"}, want: 9223372036 * time.Second, ok: true},
		{name: "beyond a Duration", h: headers{"Retry-After": "9223372037"}},
		{name: "beyond an int64", h: headers{"Retry-After": "99999999999999999999"}},
		{name: "first of both", h: headers{"Retry-After": "3", "RateLimit-Reset": "9"}, want: 3 * time.Second, ok: true},
		{name: "second if the first is bad", h: headers{"Retry-After": "x", "RateLimit-Reset": "9"}, want: 9 * time.Second, ok: true},
		{name: "reset seconds", h: headers{"RateLimit-Reset": "60"}, want: time.Minute, ok: true},
		{name: "reset a day", h: headers{"RateLimit-Reset": "86400"}, want: 24 * time.Hour, ok: true},
		{name: "reset more than a day", h: headers{"Date": date, "RateLimit-Reset": "86401"}},
		{name: "reset unix", h: headers{"Date": date, "X-RateLimit-Reset": unix(time.Minute)}, want: time.Minute, ok: true},
		{name: "reset unix past", h: headers{"Date": date, "X-RateLimit-Reset": unix(-time.Minute)}, ok: true},
		{name: "reset unix long past", h: headers{"Date": date, "X-RateLimit-Reset": unix(-25 * time.Hour)}},
		{name: "reset unix far off", h: headers{"Date": date, "X-RateLimit-Reset": unix(25 * time.Hour)}},
		{name: "reset unix in milliseconds", h: headers{"Date": date, "X-RateLimit-Reset": unix(time.Minute) + "000"}},
		{name: "reset unix without Date", h: headers{"X-RateLimit-Reset": unix(time.Minute)}},
		{name: "reset negative", h: headers{"RateLimit-Reset": "-1"}},
		{name: "reset overflowing", h: headers{"Date": date, "RateLimit-Reset": "9223372036854775808"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp := &http.Response{StatusCode: tc.status, Header: http.Header{}}
			if tc.status == 0 {
				resp.StatusCode = http.StatusTooManyRequests
			}
			for k, v := range tc.h {
				resp.Header.Set(k, v)
			}
			if d, ok := httplimit.RetryAfter(resp); d != tc.want || ok != tc.ok {
				t.Errorf("RetryAfter = %v, %t; want %v, %t", d, ok, tc.want, tc.ok)
			}
		})
	}
}

// FuzzRetryAfter: whatever a server sends, the wait is zero or positive, and a number of seconds
// that is understood is understood exactly.
func FuzzRetryAfter(f *testing.F) {
	const date = "Fri, 02 Jan 2026 03:04:05 GMT"
	for _, s := range []string{
		"", "0", "3", "-3", "+3", " 3", "3 ", "1.5", "1e9", "0x10", "1_000", "٣", "86400", "86401", "9223372036", "9223372037",
		"9223372036854775807", "9223372036854775808", "1767323105", "1767323105000", "soon", date,
		"Fri, 31 Dec 9999 23:59:59 GMT", "Mon, 01 Jan 0001 00:00:00 GMT", "Friday, 02-Jan-26 03:05:05 GMT", "Fri Jan  2 03:04:35 2026",
	} {
		f.Add(date, s, s)
		f.Add("", s, s)
		f.Add(s, s, s)
	}
	f.Fuzz(func(t *testing.T, date, after, reset string) {
		resp := &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{
			"Date": {date}, "Retry-After": {after}, "Ratelimit-Reset": {reset}, "X-Ratelimit-Reset": {reset},
		}}
		d, ok := httplimit.RetryAfter(resp)
		if d < 0 || !ok && d != 0 {
			t.Errorf("RetryAfter = %v, %t", d, ok)
		}
		if n, err := strconv.ParseUint(after, 10, 33); err == nil && (!ok || d != time.Duration(n)*time.Second) {
			t.Errorf("RetryAfter = %v, %t; want %d s", d, ok, n)
		}
	})
}
