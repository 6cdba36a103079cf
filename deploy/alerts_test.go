package deploy_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
)

var labelOfTemplate = regexp.MustCompile(`\$labels\.(\w+)`)

// TestAlerts: Prometheus loads the rules, with their templates; they are about
// metrics that workers have, and their texts name labels that the alert has.
func TestAlerts(t *testing.T) {
	known := scrapedMetrics(t)
	rules, errs := rulefmt.Parse(read(t, "docs", "alerts.yaml"), false, model.UTF8Validation, promqlParser, slog.Default())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	names := map[string]bool{}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if names[rule.Alert] || rule.Alert == "" {
				t.Errorf("%q is there twice, or no alert", rule.Alert)
			}
			names[rule.Alert] = true
			labels := known.check(t, rule.Alert, rule.Expr)
			for _, text := range rule.Annotations {
				for _, m := range labelOfTemplate.FindAllStringSubmatch(text, -1) {
					if !slices.Contains(labels, m[1]) {
						t.Errorf("%s: %q: the alert has no label %s, only %v", rule.Alert, text, m[1], labels)
					}
				}
			}
		}
	}
	if len(names) < 5 {
		t.Errorf("%d alerts: some are missing", len(names))
	}
}

// panel is what this test reads of a panel of Grafana's.
type panel struct {
	ID         int                      `json:"id"`
	Type       string                   `json:"type"`
	Title      string                   `json:"title"`
	Datasource map[string]string        `json:"datasource"`
	GridPos    struct{ X, Y, W, H int } `json:"gridPos"`
	Targets    []struct {
		RefID        string            `json:"refId"`
		Expr         string            `json:"expr"`
		LegendFormat string            `json:"legendFormat"`
		Datasource   map[string]string `json:"datasource"`
	} `json:"targets"`
}

// TestDashboard: every expression is one that Prometheus takes, once Grafana has put
// its variables in; the panels have ids and positions of their own.
func TestDashboard(t *testing.T) {
	var dashboard struct {
		UID        string  `json:"uid"`
		Title      string  `json:"title"`
		Panels     []panel `json:"panels"`
		Templating struct {
			List []struct{ Name, Type, Query string }
		} `json:"templating"`
	}
	if err := json.Unmarshal(read(t, "docs", "grafana-dashboard.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	if dashboard.UID == "" || dashboard.Title == "" || len(dashboard.Panels) < 10 {
		t.Errorf("uid %q, title %q, %d panels: something is missing", dashboard.UID, dashboard.Title, len(dashboard.Panels))
	}
	known, variables := scrapedMetrics(t), map[string]bool{}
	put := []string{"$__rate_interval", "1m"}
	for _, v := range dashboard.Templating.List {
		variables[v.Name] = true
		put = append(put, "$"+v.Name, "value")
		if inner, ok := strings.CutPrefix(v.Query, "label_values("); ok {
			metric, label, _ := strings.Cut(strings.TrimSuffix(inner, ")"), ", ")
			known.check(t, "variable "+v.Name, fmt.Sprintf("sum by (%s) (%s)", label, metric))
		}
	}
	cells, ids := map[[2]int]string{}, map[int]string{}
	for _, p := range dashboard.Panels {
		if other, taken := ids[p.ID]; taken {
			t.Errorf("%s has the id of %s", p.Title, other)
		}
		ids[p.ID] = p.Title
		if p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W < 1 || p.GridPos.H < 1 {
			t.Errorf("%s is not within the 24 columns", p.Title)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, taken := cells[cell]; taken && other != p.Title {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				cells[cell] = p.Title
			}
		}
		for _, target := range p.Targets {
			where := fmt.Sprintf("%s, %s", p.Title, target.RefID)
			labels := known.check(t, where, strings.NewReplacer(put...).Replace(target.Expr))
			for _, m := range legendLabel.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.Contains(labels, m[1]) {
					t.Errorf("%s: its legend shows the label %s, it has %v", where, m[1], labels)
				}
			}
			if uid := target.Datasource["uid"]; uid != "${datasource}" || !variables["datasource"] {
				t.Errorf("%s reads %q, not the data source that somebody chose", where, uid)
			}
		}
	}
}

var legendLabel = regexp.MustCompile(`\{\{\s*(\w+)\s*\}\}`)
