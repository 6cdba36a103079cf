package config

import (
	"strings"
	"testing"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestAdapt: bounds are read as they are written. Limits that cannot adapt are refused, with
// the position.
func TestAdapt(t *testing.T) {
	cfg, err := Parse("config.yaml", []byte("limits: { a: { rate: 10/1s, adapt: { min: 1, max: 200 }, preset: github } }\njobs: { x: { limits: [a] } }\n"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := cfg.Limits["a"].ThrottleAdapt(), (throttle.Adapt{Min: 1, Max: 200}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := (Limit{}).ThrottleAdapt(); got != (throttle.Adapt{}) {
		t.Errorf("without adapt: %+v", got)
	}
	for yaml, want := range map[string]string{
		"limits: { a: { rate: 10/1s, adapt: { min: 0, max: 20 } } }":                                                                              "limits.a.adapt.min: invalid number 0",
		"limits: { a: { rate: 10/1s, adapt: { max: 20 } } }":                                                                                      "limits.a.adapt.min: invalid number 0",
		"limits: { a: { rate: 10/1s, adapt: { min: 11, max: 20 } } }":                                                                             "limits.a.adapt.min: invalid number 11",
		"limits: { a: { rate: 10/1s, adapt: { min: 1, max: 9 } } }":                                                                               "limits.a.adapt.max: invalid number 9",
		"limits: { a: { rate: 10/1s, adapt: { min: 1, max: 4294967296 } } }":                                                                      "limits.a.adapt.max: invalid number",
		"limits: { a: { rate: 10/1s, type: per_client, adapt: { min: 1, max: 20 } } }":                                                            "limits.a.adapt: a per_client limit cannot adapt",
		"limits: { a: { rate: 10/1s, adapt: { min: 1, most: 20 } } }":                                                                             "limits.a.adapt.most: unknown key",
		"limits: { a: { rate: 10/1s, dry_run: true, adapt: { min: 1, max: 20 } } }":                                                               "limits.a.adapt: does not go with dry_run",
		"limits: { a: { rate: 10/1s, adapt: { min: 1.5, max: 20 } } }":                                                                            `limits.a.adapt.min: invalid value "1.5": want a whole number`,
		"limits: { a: { rate: 10/1s, adapt: { min: 1, max: 0x1F } } }":                                                                            `limits.a.adapt.max: invalid value "0x1F": want a whole number in decimal`,
		"limits: { a: { in_flight: 3, adapt: { min: 1, max: 20 } } }":                                                                             "limits.a.adapt: does not go with in_flight",
		"limits: { a: { rate: 10/1s, preset: gitlab } }":                                                                                          "limits.a.preset: ",
		"limits: { a: { rate: 10/1s, key: queue, rates: { q: 30/1s }, adapt: { min: 1, max: 20 } } }":                                             "limits.a.rates.q: ",
		"limits: { a: { rate: 1/1s, preset: github }, b: { rate: 1/1s, preset: stripe } }\njobs: { x: { limits: [a, b] } }":                       "jobs.x.limits[1]: the preset of \"b\" is stripe, and that of \"a\" is github",
		"limits: { a: { rate: 1/1s, adapt: { min: 1, max: 2 } }, b: { rate: 1/1s, adapt: { min: 1, max: 2 } } }\njobs: { x: { limits: [a, b] } }": "jobs.x.limits[1]: \"b\" adapts, and so does \"a\"",
	} {
		if !strings.Contains(yaml, "jobs") {
			yaml += "\njobs: { x: { limits: [a] } }"
		}
		_, err := Parse("config.yaml", []byte(yaml))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "config.yaml:") {
			t.Errorf("%s\n%v, want %s", yaml, err, want)
		}
	}
}
