package hiddenapi

import (
	"fmt"
	"net/http"
	"path"
	"strconv"
	"time"
)

// Plan has the figures of a preset's API that depend on the account. Tests use short windows.
type Plan struct {
	Permits int64         // in Window: GitHub's primary limit, Stripe's global one, OpenAI's requests, Shopify's bucket, one method of Slack
	Window  time.Duration // of Permits; for Shopify the time in which a full bucket leaks empty
	Second  int64         // GitHub: points in a minute (secondary limit). Stripe: of one endpoint. OpenAI: tokens. Zero: there is none
	Status  int           // GitHub: the status of refusals, 403 or 429
}

// Preset returns a stand-in for the API of a preset of httplimit.
func Preset(name string, p Plan) (*API, error) {
	limit := func(kind Kind, quota int64, interval time.Duration) *Limit {
		l, err := NewLimit(kind, quota, interval, 0)
		if err != nil {
			panic(err) // the figures below are right, and those of p are checked first
		}
		return l
	}
	if p.Permits < 1 || p.Window <= 0 || p.Second < 0 {
		return nil, fmt.Errorf("hidden API: %+v: want permits in a window", p)
	}
	var rules []Rule
	switch name {
	case "github":
		rules = []Rule{{Name: "core", Limit: limit(Fixed, p.Permits, p.Window)}}
		if p.Second > 0 {
			rules = append(rules, Rule{Name: "secondary", Limit: limit(Sliding, p.Second, time.Minute), Cost: githubPoints})
		}
		return New(github(p.Status), rules...), nil
	case "stripe":
		rules = []Rule{{Name: "global-rate", Limit: limit(Bucket, p.Permits, p.Window)}}
		if p.Second > 0 {
			rules = append(rules, Rule{Name: "endpoint-rate", Limit: limit(Bucket, p.Second, p.Window), Applies: isPath("/v1/charges")})
		}
		return New(stripe(), rules...), nil
	case "openai":
		rules = []Rule{{Name: "requests", Limit: limit(Bucket, p.Permits, p.Window)}}
		if p.Second > 0 {
			rules = append(rules, Rule{Name: "tokens", Limit: limit(Bucket, p.Second, p.Window), Cost: openaiTokens})
		}
		return New(openai(), rules...), nil
	case "shopify":
		return New(shopify(), Rule{Name: "bucket", Limit: limit(Bucket, p.Permits, p.Window)}), nil
	case "slack":
		return New(slack(), Rule{Name: "method", Limit: limit(Sliding, p.Permits, p.Window)}), nil
	}
	return nil, fmt.Errorf("hidden API: no stand-in for %q", name)
}

func isPath(p string) func(*http.Request) bool {
	return func(r *http.Request) bool { return path.Clean(r.URL.Path) == p }
}

// githubPoints: most requests that read cost one point, most that change something five.
func githubPoints(r *http.Request) int64 {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return 1
	}
	return 5
}

// github reports its primary limit in every response. Beyond that limit it answers 403 or 429,
// with nothing remaining. Beyond the secondary limit it answers the same status with
// Retry-After and a message, while the headers still report the primary limit.
func github(status int) Manners {
	if status == 0 {
		status = http.StatusForbidden
	}
	return Manners{
		Headers: func(h http.Header, now time.Time, states []State) {
			if len(states) == 0 {
				return
			}
			s := states[0]
			h.Set("x-ratelimit-limit", strconv.FormatInt(s.Rule.Limit.quota, 10))
			h.Set("x-ratelimit-remaining", strconv.FormatInt(s.Left, 10))
			h.Set("x-ratelimit-used", strconv.FormatInt(s.Rule.Limit.quota-s.Left, 10))
			h.Set("x-ratelimit-reset", strconv.FormatInt(now.Add(s.Reset+time.Second-1).Unix(), 10))
			h.Set("x-ratelimit-resource", s.Rule.Name)
		},
		Refuse: func(w http.ResponseWriter, by State) {
			message := "API rate limit exceeded"
			if by.Rule.Name == "secondary" {
				w.Header().Set("Retry-After", strconv.Itoa(seconds(by.Wait)))
				message = "You have exceeded a secondary rate limit"
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			fmt.Fprintf(w, "{\"message\":%q}\n", message)
		},
	}
}

// stripe says nothing until it refuses. Then it says which limit it was.
func stripe() Manners {
	return Manners{Refuse: func(w http.ResponseWriter, by State) {
		w.Header().Set("Stripe-Rate-Limited-Reason", by.Rule.Name)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprintln(w, `{"error":{"type":"invalid_request_error","code":"rate_limit"}}`)
	}}
}

// openaiTokens is the cost that the request names.
func openaiTokens(r *http.Request) int64 {
	n, err := strconv.ParseInt(r.URL.Query().Get("tokens"), 10, 64)
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// openai reports requests and tokens in every response. Resets are durations.
func openai() Manners {
	return Manners{
		Headers: func(h http.Header, _ time.Time, states []State) {
			for _, s := range states {
				h.Set("x-ratelimit-limit-"+s.Rule.Name, strconv.FormatInt(s.Rule.Limit.quota, 10))
				h.Set("x-ratelimit-remaining-"+s.Rule.Name, strconv.FormatInt(s.Left, 10))
				h.Set("x-ratelimit-reset-"+s.Rule.Name, s.Reset.Round(time.Millisecond).String())
			}
		},
		Refuse: func(w http.ResponseWriter, by State) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprintf(w, "{\"error\":{\"type\":%q,\"code\":\"rate_limit_exceeded\"}}\n", by.Rule.Name)
		},
	}
}

// shopify reports how full its bucket is. When it is full: 429 with Retry-After: 2.0.
func shopify() Manners {
	return Manners{
		Headers: func(h http.Header, _ time.Time, states []State) {
			for _, s := range states {
				h.Set("X-Shopify-Shop-Api-Call-Limit", fmt.Sprintf("%d/%d", s.Rule.Limit.quota-s.Left, s.Rule.Limit.quota))
			}
		},
		Refuse: func(w http.ResponseWriter, _ State) {
			w.Header().Set("Retry-After", "2.0")
			http.Error(w, `{"errors":"Exceeded 2 calls per second for api client. Reduce request rates to resume uninterrupted service."}`, http.StatusTooManyRequests)
		},
	}
}

// slack only says, once it refuses, for how many seconds to wait.
func slack() Manners {
	return Manners{Refuse: func(w http.ResponseWriter, by State) {
		w.Header().Set("Retry-After", strconv.Itoa(max(seconds(by.Wait), 1)))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprintln(w, `{"ok":false,"error":"ratelimited"}`)
	}}
}
