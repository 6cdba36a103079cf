package deploy_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/jobthrottle/jobthrottle/worker/metrics"
)

// promqlParser parses as Prometheus does without experimental features.
var promqlParser = parser.NewParser(parser.Options{})

// scraped are the labels of each metric of a worker, with those that Prometheus adds.
type scraped map[string][]string

var described = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

func scrapedMetrics(t *testing.T) scraped {
	t.Helper()
	descs := make(chan *prometheus.Desc, 1000)
	for _, c := range []prometheus.Collector{
		metrics.NewCollector(nil), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		c.Describe(descs)
	}
	close(descs)
	known := scraped{}
	for d := range descs {
		m := described.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("cannot read %s", d)
		}
		labels := append(word.FindAllString(m[2], -1), "instance", "job")
		known[m[1]] = labels
		for _, suffix := range []string{"_bucket", "_sum", "_count"} { // of a histogram
			known[m[1]+suffix] = append(slices.Clone(labels), "le")
		}
	}
	return known
}

var word = regexp.MustCompile(`[a-zA-Z_]\w*`)

// check fails the test unless Prometheus takes the expression, and each metric and
// label in it is one that a worker shows. It returns the labels of the result.
func (known scraped) check(t *testing.T, where, expr string) []string {
	t.Helper()
	parsed, err := promqlParser.ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v: %s", where, err, expr)
		return nil
	}
	var has, wants []string
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			labels, ok := known[n.Name]
			if !ok {
				t.Errorf("%s: no worker shows %q", where, n.Name)
			}
			has = append(has, labels...)
			for _, m := range n.LabelMatchers {
				if m.Name != "__name__" {
					wants = append(wants, m.Name)
				}
			}
		case *parser.AggregateExpr:
			wants = append(wants, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				wants = append(wants, n.VectorMatching.MatchingLabels...)
			}
		}
		return nil
	})
	for _, label := range wants {
		if !slices.Contains(has, label) {
			t.Errorf("%s: no metric in it has a label %q: %s", where, label, expr)
		}
	}
	return known.result(parsed)
}

// result returns the labels that the result of an expression can have.
func (known scraped) result(expr parser.Expr) []string {
	switch e := expr.(type) {
	case *parser.VectorSelector:
		return known[e.Name]
	case *parser.MatrixSelector:
		return known.result(e.VectorSelector)
	case *parser.SubqueryExpr:
		return known.result(e.Expr)
	case *parser.ParenExpr:
		return known.result(e.Expr)
	case *parser.StepInvariantExpr:
		return known.result(e.Expr)
	case *parser.UnaryExpr:
		return known.result(e.Expr)
	case *parser.AggregateExpr:
		if !e.Without {
			return e.Grouping
		}
		return slices.DeleteFunc(slices.Clone(known.result(e.Expr)), func(l string) bool { return slices.Contains(e.Grouping, l) })
	case *parser.BinaryExpr:
		switch {
		case e.LHS.Type() != parser.ValueTypeVector:
			return known.result(e.RHS)
		case e.VectorMatching != nil && e.VectorMatching.On && !e.Op.IsSetOperator() && e.VectorMatching.Card == parser.CardOneToOne:
			return e.VectorMatching.MatchingLabels
		}
		return known.result(e.LHS)
	case *parser.Call:
		if e.Func.Name == "absent" || len(e.Args) == 0 {
			return nil
		}
		return known.result(e.Args[len(e.Args)-1])
	}
	return nil
}
