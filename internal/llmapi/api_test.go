package llmapi

import (
	"testing"
	"time"
)

// TestReport: intervals are judged at each call and each settling, and only what is
// not settled yet explains tokens above the limit.
func TestReport(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		calls []call
		want  Report
	}{
		"none":          {nil, Report{}},
		"within":        {[]call{{0, s, 50, 50}, {s, s, 50, 50}}, Report{Requests: 2, Tokens: 100, BusiestRequests: 2, BusiestTokens: 100, Spread: s}},
		"next interval": {[]call{{0, 1, 100, 100}, {2 * s, 2*s + 1, 100, 100}}, Report{Requests: 2, Tokens: 200, BusiestRequests: 1, BusiestTokens: 100, Spread: 2 * s}},
		"unsettled": {[]call{{0, 0, 130, 60}, {s, 0, 40, 40}},
			Report{Requests: 2, Tokens: 170, BusiestRequests: 2, BusiestTokens: 170, Unsettled: 70, Spread: s}},
		"settled and over": {[]call{{0, s / 2, 90, 60}, {s, 0, 40, 40}},
			Report{Requests: 2, Tokens: 130, BusiestRequests: 2, BusiestTokens: 130, Unsettled: 30, Unexplained: 30, Spread: s}},
		"settled above the limit": {[]call{{0, s, 90, 60}, {s / 2, 0, 40, 40}},
			Report{Requests: 2, Tokens: 130, BusiestRequests: 2, BusiestTokens: 130, Unsettled: 30, Unexplained: 30, Spread: s / 2}},
		"cheaper": {[]call{{0, 0, 30, 100}, {s, 0, 80, 100}},
			Report{Requests: 2, Tokens: 110, BusiestRequests: 2, BusiestTokens: 110, Unexplained: 10, Spread: s}},
	} {
		a := New(2, 100, 2*s, 0)
		for _, c := range tt.calls {
			a.order = append(a.order, &c)
		}
		if got := a.Report(); got != tt.want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, tt.want)
		}
	}
}
