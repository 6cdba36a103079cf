package plan

import (
	"slices"
	"testing"

	"github.com/jobthrottle/jobthrottle/config"
)

// jobsOf returns what a configuration says about jobs.
func jobsOf(tb testing.TB, yaml string) *Jobs {
	tb.Helper()
	cfg, err := config.Parse("config.yaml", []byte(yaml))
	if err != nil {
		tb.Fatal(err)
	}
	js, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return js
}

func TestPatterns(t *testing.T) {
	const patterns = `"email:": {}, "email:send*": {}, "email:send": {}, image: {}, "image:resize:": {}`
	js := jobsOf(t, `jobs: { "*": {}, `+patterns+` }`)
	for taskType, want := range map[string]string{
		"email:send":         "email:send",
		"email:sendlater":    "email:send*",
		"email:":             "email:",
		"email:draft":        "email:",
		"image":              "image",
		"images":             "*",
		"image:resize:small": "image:resize:",
		"image:resize":       "*",
		"":                   "*",
	} {
		if got := js.For(taskType); got == nil || got.Name != want {
			t.Errorf("%q: got %v, want the job %q", taskType, got, want)
		}
	}
	if got := jobsOf(t, `jobs: { `+patterns+` }`).For("images"); got != nil {
		t.Errorf("images: got the job %q, want none", got.Name)
	}
}

// TestOrder: jobs come in the order in which they win, limits by name.
func TestOrder(t *testing.T) {
	js := jobsOf(t, `
limits: { c: { rate: 1/1s }, a: { rate: 1/1s, type: per_client }, b: { rate: 1/1s, key: payload.x } }
jobs: { "*": { limits: [c, a] }, "x:": { limits: [b] }, "x:a": {}, "x:a*": {} }
`)
	var jobs, limits []string
	for _, j := range js.All() {
		jobs = append(jobs, j.Name)
	}
	for _, l := range js.Limits() {
		limits = append(limits, l.String())
	}
	if want := []string{"x:a", "x:a*", "x:", "*"}; !slices.Equal(jobs, want) {
		t.Errorf("jobs %q, want %q", jobs, want)
	}
	if want := []string{"a 1/1s per worker", "b 1/1s per payload.x", "c 1/1s"}; !slices.Equal(limits, want) {
		t.Errorf("limits %q, want %q", limits, want)
	}
}

// TestRatesOfValues: a draw has the rate of its value, or the common one.
func TestRatesOfValues(t *testing.T) {
	js := jobsOf(t, `
limits: { a: { rate: 1/1s, key: queue, rates: { q: 2/1s, "x:y": 3/1s } }, b: { rate: 4/1s } }
jobs: { x: { limits: [a, b] } }
`)
	for queue, want := range map[string]string{"q": "2/1s", "x:y": "3/1s", "other": "1/1s"} {
		p, err := js.Plan(Task{Type: "x", Queue: queue})
		if err != nil || p.Draws[0].Rate.String() != want || p.Draws[1].Rate.String() != "4/1s" {
			t.Errorf("queue %s: draws %+v, %v, want one at %s", queue, p.Draws, err, want)
		}
	}
}

func TestPausedLimits(t *testing.T) {
	tests := []struct {
		name   string
		job    string
		paused []string
	}{
		{"the keyed one", "{limits: [fleet, worker, account]}", []string{"account:7"}},
		{"else the overall ones", "{limits: [fleet, worker, day]}", []string{"fleet", "day"}},
		{"as configured", "{limits: [fleet, worker, account], pause_on_429: [fleet, account]}", []string{"fleet", "account:7"}},
		{"none", "{limits: [fleet, worker, account], pause_on_429: []}", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			js := jobsOf(t, `
limits:
  fleet: {rate: 100/1s}
  day: {rate: 1000/24h}
  worker: {rate: 10/1s, type: per_client}
  account: {rate: 1/1s, key: payload.account.id}
jobs:
  all: {limits: [fleet, day, worker, account]}
  x: `+tt.job)
			p, err := js.Plan(Task{Type: "x", Payload: []byte(`{"account": {"id": 7}}`)})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range p.Draws {
				if d.Pauses {
					got = append(got, d.Limiter)
				}
			}
			if !slices.Equal(got, tt.paused) {
				t.Errorf("got %v, want %v", got, tt.paused)
			}
		})
	}
}

func TestFields(t *testing.T) {
	js := jobsOf(t, `
limits:
  a: { rate: 1/1s, key: payload.account.id }
  b: { rate: 1/1s, key: payload.account }
  c: { rate: 1/1s, key: header.tenant }
  d: { rate: 1/1s }
jobs: { x: { limits: [a, b, c, d], permits: payload.tokens }, y: { permits: 3 }, z: { limits: [a, d], permits: { d: payload.usage.total, a: header.n } } }
`)
	if got, want := js.Fields(), []string{"account", "tokens", "usage"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
