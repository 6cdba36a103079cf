package admin_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
)

// TestTenants: who has what of a limit that tenants share, on the page, in the API and in
// the metrics.
func TestTenants(t *testing.T) {
	b := openBrowser(t)
	s := newSite(t, 1, `
limits: { api: { rate: 7/24h, share: payload.account, weights: { acme: 3 } } }
pools: [ { name: default, concurrency: 8 } ]
jobs: { "http:request": { limits: [api], hold: 0 } }
http: { allow_hosts: ["$API"] }
`, token)
	s.awaitCreated("api")
	s.enqueue(12, "default", "acme")
	s.enqueue(20, "default", "globex <b>")
	s.await(patience, func() (bool, string) {
		shares, all, err := s.first.Inspector().Tenants(t.Context(), "api")
		if err != nil {
			t.Fatal(err)
		}
		parked := int64(0)
		for _, of := range shares {
			parked += of.Parked
		}
		return all == 2 && parked == 25, fmt.Sprintf("%+v", shares)
	})
	page, err := s.first.Inspector().Jobs(t.Context(), jobview.JobQuery{Limit: "api"})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Jobs) != 25 {
		t.Errorf("%d jobs wait for the limit, want 25", len(page.Jobs))
	}
	for _, j := range page.Jobs {
		if j.Limit != "api" || j.Why != jobview.WhyLimit || j.Next.IsZero() {
			t.Errorf("%+v, want one in line for api, with about when its turn is", j)
			break
		}
	}
	b.resize(1280, 900, "light")
	b.do(chromedp.Navigate("http://" + s.addr + "/"))
	b.until(patience, `document.querySelectorAll('[data-key="api"] .tenants li').length === 2`)
	text := shown(b, "api", ".tenants")
	for _, want := range []string{"acme75 %, weight 3, ", "globex <b>25 %, weight 1, "} {
		if !strings.Contains(text, want) {
			t.Errorf("the page shows %q, without %q", text, want)
		}
	}
	if badges := shown(b, "api", ".badges"); !strings.Contains(badges, "shared by payload.account") {
		t.Errorf("badges %q", badges)
	}
	resp, err := http.Get("http://" + s.addr + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if want := `jobthrottle_waiting_tenants{limit="api"} 2`; !strings.Contains(string(body), want) || strings.Contains(string(body), "acme") {
		t.Errorf("the metrics lack %s, or name tenants", want)
	}
}
