package metrics_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"
)

// TestDocs: every metric and label in docs/alerts.yaml and
// docs/grafana-dashboard.json is one that a worker shows, and every metric of a
// worker's is in one of them.
func TestDocs(t *testing.T) {
	s := newSite(t, 1, `
limits: { api: { rate: 10/1s, adapt: { min: 1, max: 100 }, share: payload.tenant }, trial: { rate: 10/1s, dry_run: true }, slots: { in_flight: 5 } }
jobs: { "http:request": { limits: [api, trial, slots] } }
`)
	s.await(20*time.Second, func() (bool, string) { return len(s.gather()[0]) == len(described()), "metrics are missing" })
	s.workers[0].MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	shown := s.gather()[0]

	used := map[string]bool{}
	for where, expr := range expressions(t) {
		names, labels, err := parse(expr)
		if err != nil {
			t.Errorf("%s: %v: %s", where, err, expr)
		}
		known := []string{"instance", "job", "le"} // which Prometheus adds
		for _, name := range names {
			family := familyOf(shown, name)
			if family == nil {
				t.Errorf("%s: no worker shows %q", where, name)
				continue
			}
			used[family.GetName()] = true
			for _, l := range family.GetMetric()[0].GetLabel() {
				known = append(known, l.GetName())
			}
		}
		for _, label := range labels {
			if !slices.Contains(known, label) {
				t.Errorf("%s: no metric in it has a label %q: %s", where, label, expr)
			}
		}
	}
	for name := range shown {
		if strings.HasPrefix(name, "jobthrottle_") && !used[name] {
			t.Errorf("%s is neither in the dashboard nor in an alert", name)
		}
	}
}

// TestTable: docs/metrics.md has a row for each metric, as it is.
func TestTable(t *testing.T) {
	s := newSite(t, 1, `
limits: { api: { rate: 10/1s, adapt: { min: 1, max: 100 }, share: payload.tenant }, trial: { rate: 10/1s, dry_run: true }, slots: { in_flight: 5 } }
jobs: { "http:request": { limits: [api, trial, slots] } }
`)
	s.await(20*time.Second, func() (bool, string) { return len(s.gather()[0]) == len(described()), "metrics are missing" })
	shown := s.gather()[0]
	table := string(read(t, "metrics.md"))
	for name, family := range shown {
		var labels []string
		for _, l := range family.GetMetric()[0].GetLabel() {
			labels = append(labels, l.GetName())
		}
		row := fmt.Sprintf("| `%s` | %s | %s | %s |", name, strings.ToLower(family.GetType().String()), strings.Join(labels, ", "), family.GetHelp())
		if !strings.Contains(table, row+"\n") {
			t.Errorf("missing:\n%s", row)
		}
	}
	if rows := strings.Count(table, "| `jobthrottle_"); rows != len(shown) {
		t.Errorf("%d rows for %d metrics", rows, len(shown))
	}
}

// expressions are those of the documents, by where they are.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	exprs := map[string]string{}
	var rules struct {
		Groups []struct {
			Name  string `yaml:"name"`
			Rules []struct {
				Alert       string            `yaml:"alert"`
				Expr        string            `yaml:"expr"`
				For         string            `yaml:"for"`
				Labels      map[string]string `yaml:"labels"`
				Annotations map[string]string `yaml:"annotations"`
			} `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.UnmarshalWithOptions(read(t, "alerts.yaml"), &rules, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	for _, g := range rules.Groups {
		for _, r := range g.Rules {
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Errorf("alert %s does not say how bad it is, or what it means", r.Alert)
			}
			exprs["alert "+r.Alert] = r.Expr
		}
	}
	var dashboard struct {
		Templating struct {
			List []struct{ Name, Query string }
		}
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(read(t, "grafana-dashboard.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, v := range dashboard.Templating.List {
		if query, ok := strings.CutPrefix(v.Query, "label_values("); ok {
			metric, label, _ := strings.Cut(strings.TrimSuffix(query, ")"), ", ")
			exprs["variable "+v.Name] = fmt.Sprintf("sum by (%s) (%s)", label, metric)
		}
	}
	for _, p := range dashboard.Panels {
		for i, target := range p.Targets {
			exprs[fmt.Sprintf("panel %s %d", p.Title, i)] = target.Expr
		}
	}
	if len(exprs) < 20 {
		t.Fatalf("only %d expressions found", len(exprs))
	}
	return exprs
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	words = []string{ // of PromQL, as far as the documents use it
		"absent", "and", "by", "count", "histogram_quantile", "increase", "max", "min", "on", "or", "rate", "sum", "unless", "vector", "without",
	}
	stringsAndRanges = regexp.MustCompile(`"[^"]*"|\[[^\]]*\]`)
	labelLists       = regexp.MustCompile(`(?:\b(?:by|on|without)\s*\(([^)]*)\))|\{([^}]*)\}`)
	identifier       = regexp.MustCompile(`[a-zA-Z_][a-zA-Z0-9_]*`)
	rest             = regexp.MustCompile(`^[0-9.\s(),*/+<>=!-]*$`)
)

// parse returns the metrics and the labels that an expression names. It knows
// as much of PromQL as the documents use, and fails on everything else.
func parse(expr string) (metrics, labels []string, err error) {
	if open, shut := strings.Count(expr, "("), strings.Count(expr, ")"); open != shut {
		return nil, nil, fmt.Errorf("%d opening and %d closing brackets", open, shut)
	}
	expr = stringsAndRanges.ReplaceAllString(expr, "")
	for _, list := range labelLists.FindAllStringSubmatch(expr, -1) {
		labels = append(labels, identifier.FindAllString(list[1]+","+list[2], -1)...)
	}
	expr = labelLists.ReplaceAllString(expr, " ")
	for _, word := range identifier.FindAllString(expr, -1) {
		if !slices.Contains(words, word) {
			metrics = append(metrics, word)
		}
	}
	if left := identifier.ReplaceAllString(expr, ""); !rest.MatchString(left) {
		return nil, nil, fmt.Errorf("unexpected %q", left)
	}
	if len(metrics) == 0 {
		return nil, nil, fmt.Errorf("no metric")
	}
	return metrics, labels, nil
}

// familyOf returns the metric that a name in an expression stands for.
func familyOf(shown map[string]*dto.MetricFamily, name string) *dto.MetricFamily {
	if f := shown[name]; f != nil {
		return f
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		base, ok := strings.CutSuffix(name, suffix)
		if f := shown[base]; ok && f != nil && f.GetType() == dto.MetricType_HISTOGRAM {
			return f
		}
	}
	return nil
}
