package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// ErrUnknownPreset is what [FindPreset] returns for a name it does not know.
var ErrUnknownPreset = errors.New("unknown preset")

// Preset is what an API documents about its limits, for [Read]: which headers tell them, for
// which windows they hold, and which responses are refusals. The zero Preset is an API of which
// nothing is known.
type Preset struct {
	Name string
	// Docs is the page that documents it.
	Docs string
	// Permits in Window is the limit for most callers, to start with; zero if it depends on the
	// caller's plan.
	Permits int64
	Window  time.Duration
	// Backoff is how long to stay away after a refusal that does not say how long, or says no time at all.
	Backoff time.Duration

	windows           map[string]time.Duration // of resources whose window is not Window
	read              func(*reader, Preset)    // nil: the headers that need no preset
	refused           func(*reader) bool       // nil: 429
	decimalRetryAfter bool                     // Retry-After may be 2.0
	resetIsGradual    bool                     // units come back one by one until Reset
}

// presets has every preset, in the order in which they are listed.
func presets() []Preset {
	return []Preset{
		{
			Name: "github", Docs: "https://docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api",
			Permits: 5000, Window: time.Hour, Backoff: time.Minute,
			windows: map[string]time.Duration{"search": time.Minute, "code_search": time.Minute},
			read:    readGitHub, refused: refusedByGitHub,
		},
		{
			Name: "stripe", Docs: "https://docs.stripe.com/rate-limits",
			Permits: 100, Window: time.Second,
			read: readStripe, refused: refusedByStripe,
		},
		{
			Name: "openai", Docs: "https://developers.openai.com/api/docs/guides/rate-limits",
			Window: time.Minute,
			read:   readOpenAI, resetIsGradual: true,
		},
		{
			Name: "shopify", Docs: "https://shopify.dev/docs/api/admin-rest/usage/rate-limits",
			Permits: 40, Window: shopifyWindow, Backoff: 2 * time.Second,
			read: readShopify, decimalRetryAfter: true, resetIsGradual: true,
		},
		{
			Name: "slack", Docs: "https://docs.slack.dev/apis/web-api/rate-limits",
			Window: time.Minute, Backoff: time.Minute,
			read: readNothing,
		},
	}
}

// Presets returns the names of all presets, for [FindPreset].
func Presets() []string {
	var names []string
	for _, p := range presets() {
		names = append(names, p.Name)
	}
	return names
}

// FindPreset returns the preset of this name. If there is none, the error wraps
// [ErrUnknownPreset] and lists the names.
func FindPreset(name string) (Preset, error) {
	for _, p := range presets() {
		if p.Name == name {
			return p, nil
		}
	}
	return Preset{}, fmt.Errorf("%w %q: want one of %s", ErrUnknownPreset, name, strings.Join(Presets(), ", "))
}

func readNothing(*reader, Preset) {}

// readTrio reads the three headers that many APIs have, each after prefix, as one quota. In the
// versions up to 06 of the IETF draft, they are about one of the policies without a name.
func (r *reader) readTrio(prefix string, p Preset, reset func(string) (time.Duration, bool)) *Quota {
	q := Quota{
		Unit: Requests, Window: p.Window,
		Limit:     r.limit(prefix + "Limit"),
		Remaining: r.number(prefix + "Remaining"),
		Reset:     r.time(prefix+"Reset", reset),
	}
	if q.Limit == 0 && q.Remaining < 0 && q.Reset < 0 {
		return nil
	}
	for i := range r.Quotas {
		if policy := &r.Quotas[i]; policy.Name == "" && policy.Limit == q.Limit && policy.Remaining < 0 {
			policy.Remaining, policy.Reset = q.Remaining, q.Reset
			return policy
		}
	}
	r.Quotas = append(r.Quotas, q)
	return &r.Quotas[len(r.Quotas)-1]
}

// secondsOrUnix reads resets that may be seconds or Unix times.
func (r *reader) secondsOrUnix(s string) (time.Duration, bool) { return parseReset(s, r.date, r.dated) }

// unix reads resets that are Unix times.
func (r *reader) unix(s string) (time.Duration, bool) {
	n, ok := parseDigits(s)
	if !ok {
		return 0, false
	}
	return untilUnix(n, r.date, r.dated)
}

// readGitHub: x-ratelimit-limit, -remaining, -reset in UTC epoch seconds, and
// -resource, which names the limit that the request counts against.
func readGitHub(r *reader, p Preset) {
	q := r.readTrio("X-RateLimit-", p, r.unix)
	if q == nil {
		return
	}
	q.Name = r.header.Get("X-RateLimit-Resource")
	if w, ok := p.windows[q.Name]; ok {
		q.Window = w
	}
	if q.Name != "" && q.Name != "core" { // a resource of its own: its limit is not that of other requests
		q.Unit = q.Name + " " + Requests
	}
}

// refusedByGitHub: 429 or 403. GitHub also sends 403 to callers that may not see something. What
// is left of the quotas, or Retry-After, tells the two apart.
func refusedByGitHub(r *reader) bool {
	switch r.status {
	case http.StatusTooManyRequests:
		return true
	case http.StatusForbidden:
		_, exhausted := r.exhausted()
		return exhausted || r.header.Get("Retry-After") != ""
	}
	return false
}

// readStripe: Stripe does not tell its limits, but which of them refused.
func readStripe(r *reader, _ Preset) {
	if reason := r.header.Get("Stripe-Rate-Limited-Reason"); reason != "" && r.status == http.StatusTooManyRequests {
		r.Limit = reason
	}
}

// refusedByStripe: 429, unless the reason is not a rate: too many requests at the same time, or
// too many changes of one object.
func refusedByStripe(r *reader) bool {
	return refusedIf429(r) && !strings.HasSuffix(r.Limit, "-concurrency") && r.Limit != "resource-specific"
}

// readOpenAI: limits of requests and of tokens. Their resets are durations such as 6m0s.
func readOpenAI(r *reader, p Preset) {
	for _, unit := range []string{Requests, Tokens} {
		q := Quota{
			Name: unit, Unit: unit, Window: p.Window,
			Limit:     r.limit("X-RateLimit-Limit-" + unit),
			Remaining: r.number("X-RateLimit-Remaining-" + unit),
			Reset:     r.time("X-RateLimit-Reset-"+unit, parseGoDuration),
		}
		if isOfADay(q) {
			q.Window = day * time.Second
		}
		if q.Limit > 0 || q.Remaining >= 0 || q.Reset >= 0 {
			r.Quotas = append(r.Quotas, q)
		}
	}
}

// isOfADay reports whether a quota whose units come back one by one is for a day: OpenAI does not say which of an account's
// limits its headers are about. What was used comes back within Reset, so all of it takes about a day, or less as it seems if
// a part of a unit has come back already. Limits for a minute take a minute.
func isOfADay(q Quota) bool {
	used := q.Limit - q.Remaining
	if q.Remaining < 0 || used <= 0 || q.Reset <= 0 {
		return false
	}
	whole := q.Reset.Seconds() * float64(q.Limit) / float64(used)
	return whole > 600 && whole < 1.1*day
}

func parseGoDuration(s string) (time.Duration, bool) {
	d, err := time.ParseDuration(s)
	return d, err == nil && s[0] >= '0' && s[0] <= '9' // no sign
}

// shopifyWindow is the time in which a full bucket leaks empty, on every plan: 40 at 2 a second,
// 80 at 4, 400 at 20. So a bucket never overflows if there are no more requests in any such time
// than it holds.
const shopifyWindow = 20 * time.Second

// readShopify: X-Shopify-Shop-Api-Call-Limit: 32/40, how full the bucket is.
func readShopify(r *reader, p Preset) {
	s := r.header.Get("X-Shopify-Shop-Api-Call-Limit")
	if s == "" {
		return
	}
	used, size, _ := strings.Cut(s, "/")
	u, ok := parseDigits(used)
	n, ok2 := parseDigits(size)
	if !ok || !ok2 || n == 0 {
		r.Ignored++
		return
	}
	n = min(n, maxQuota)
	u = min(u, n)
	r.Quotas = append(r.Quotas, Quota{
		Unit: Requests, Limit: n, Window: p.Window, Remaining: n - u,
		Reset: time.Duration(float64(p.Window) * float64(u) / float64(n)),
	})
}
