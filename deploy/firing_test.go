package deploy_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// TestAlertsFire lets Prometheus's own engine evaluate the rules over what workers show, and checks which are
// true for which limit or queue.
func TestAlertsFire(t *testing.T) {
	// Two workers; limit a grants 5 permits a second in all. Queue q has its jobs.
	healthy := `
redis_up{instance="1"} 1x90
redis_up{instance="2"} 1x90
pool_slots{instance="1",pool="default"} 20x90
pool_slots{instance="2",pool="default"} 20x90
permits_granted_total{instance="1",limit="a"} 0+180x90
permits_granted_total{instance="2",limit="a"} 0+120x90
limit_permits{instance="1",limit="a"} 5x90
limit_interval_seconds{instance="1",limit="a"} 1x90
paused_seconds{instance="1",limit="a"} 0x90
parked_jobs{instance="1",limit="a"} 100x90
queue_paused{instance="1",pool="default",queue="q"} 0x90
queue_jobs{instance="1",pool="default",queue="q",state="parked"} 100x90
`
	// Limit b grants nothing, and jobs wait for it.
	stuck := `
permits_granted_total{instance="1",limit="b"} 0x90
limit_permits{instance="1",limit="b"} 5x90
limit_interval_seconds{instance="1",limit="b"} 1x90
paused_seconds{instance="1",limit="b"} 0x90
parked_jobs{instance="1",limit="b"} 10x90
`
	inPaused := `
queue_paused{instance="1",pool="default",queue="paused"} 1x90
queue_jobs{instance="1",pool="default",queue="paused",state="parked"} 10x90
`
	for _, tt := range []struct {
		name, series string
		want         []string
	}{
		{"a healthy fleet", healthy, nil},
		{"nobody is there", "", []string{"NoWorker"}},
		{"Redis is away", `redis_up{instance="1"} 0x90`, []string{"RedisAway 1"}},
		{"a right is missing", `redis_up{instance="1"} 1x90`, []string{"Unread 1"}},
		{"a limit grants nothing", healthy + stuck, []string{"Stuck b"}},
		{"one of the queues with jobs in line is paused", healthy + stuck + inPaused, []string{"QueuePaused paused", "Stuck b"}},
		{"all jobs in line are in a paused queue", stuck + inPaused + `
redis_up{instance="1"} 1x90
pool_slots{instance="1",pool="default"} 20x90
queue_paused{instance="1",pool="default",queue="q"} 0x90
queue_jobs{instance="1",pool="default",queue="q",state="parked"} 0x90
`, []string{"QueuePaused paused"}},
		{"the limit is paused", healthy + strings.Replace(stuck, `paused_seconds{instance="1",limit="b"} 0`, `paused_seconds{instance="1",limit="b"} 60`, 1), []string{"Paused b"}},
		{"slots come free", healthy + `
in_flight_parked_jobs{instance="1",limit="slots"} 5x90
in_flight_slots_total{instance="1",limit="slots"} 0+1x90
`, nil},
		{"jobs hang in all slots", healthy + `
in_flight_parked_jobs{instance="1",limit="slots"} 5x90
in_flight_slots_total{instance="1",limit="slots"} 5x90
`, []string{"NoSlot slots"}},
		{"more than an hour of jobs", strings.Replace(healthy, `parked_jobs{instance="1",limit="a"} 100`, `parked_jobs{instance="1",limit="a"} 18100`, 1), []string{"Backlog a"}},
		{"two days of jobs of a limit of a day, after a burst", healthy + `
permits_granted_total{instance="1",limit="day"} 0x80 1000x9
limit_permits{instance="1",limit="day"} 1000x90
limit_interval_seconds{instance="1",limit="day"} 86400x90
paused_seconds{instance="1",limit="day"} 0x90
parked_jobs{instance="1",limit="day"} 2000x90
`, []string{"Backlog day"}},
		{"a limit of 20 workers each, three minutes of jobs", healthy + `
permits_granted_total{instance="1",limit="own"} 0+12000x90
limit_permits{instance="1",limit="own"} 10x90
limit_interval_seconds{instance="1",limit="own"} 1x90
paused_seconds{instance="1",limit="own"} 0x90
parked_jobs{instance="1",limit="own"} 37000x90
`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := firing(t, history(t, tt.series)); !slices.Equal(got, tt.want) {
				t.Errorf("%q are true, want %q", got, tt.want)
			}
		})
	}
}

// history is what a server remembers of workers that it scraped once a minute: lines of series as promtool
// takes them, without jobthrottle_ and job.
func history(t *testing.T, lines string) storage.Queryable {
	t.Helper()
	var all []promql.Series
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, values, err := promqlParser.ParseSeriesDesc("jobthrottle_" + strings.Replace(line, "{", `{job="workers",`, 1))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		s := promql.Series{Metric: name}
		for i, v := range values {
			s.Floats = append(s.Floats, promql.FPoint{T: int64(i) * time.Minute.Milliseconds(), F: v.Value})
		}
		all = append(all, s)
	}
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, wants ...*labels.Matcher) storage.SeriesSet {
		found := &found{}
		for _, s := range all {
			if !slices.ContainsFunc(wants, func(m *labels.Matcher) bool { return !m.Matches(s.Metric.Get(m.Name)) }) {
				found.series = append(found.series, promql.NewStorageSeries(s))
			}
		}
		return found
	}}}
}

// found are the series that match.
type found struct {
	series []storage.Series
	at     int
}

func (f *found) Next() bool                      { f.at++; return f.at <= len(f.series) }
func (f *found) At() storage.Series              { return f.series[f.at-1] }
func (*found) Err() error                        { return nil }
func (*found) Warnings() annotations.Annotations { return nil }

// firing are the rules that are true after 90 minutes, without Jobthrottle, each with its limit, queue or
// instance.
func firing(t *testing.T, q storage.Queryable) (alerts []string) {
	t.Helper()
	rules, errs := rulefmt.Parse(read(t, "docs", "alerts.yaml"), false, model.UTF8Validation, promqlParser, slog.Default())
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, Parser: promqlParser})
	defer engine.Close()
	for _, rule := range rules.Groups[0].Rules {
		query, err := engine.NewInstantQuery(t.Context(), q, nil, rule.Expr, time.UnixMilli(0).Add(90*time.Minute))
		if err != nil {
			t.Fatalf("%s: %v", rule.Alert, err)
		}
		result, err := query.Exec(t.Context()).Vector()
		if err != nil {
			t.Fatalf("%s: %v", rule.Alert, err)
		}
		for _, s := range result {
			of := s.Metric.Get("limit") + s.Metric.Get("queue")
			if of == "" {
				of = s.Metric.Get("instance")
			}
			alerts = append(alerts, strings.TrimSpace(strings.TrimPrefix(rule.Alert, "Jobthrottle")+" "+of))
		}
		query.Close()
	}
	slices.Sort(alerts)
	return alerts
}
