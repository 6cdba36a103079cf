package config

import (
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestInFlight: a limit in flight has a number, perhaps a key and a lease, and no settings of a
// rate. Mistakes are refused with their position in the file.
func TestInFlight(t *testing.T) {
	cfg, err := Parse("config.yaml", []byte("limits: { a: { in_flight: 40 }, b: { in_flight: 1, key: payload.c, lease: 3s } }\njobs: { x: { limits: [a, b] } }\n"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]throttle.Slots{"a": {Limit: 40}, "b": {Limit: 1, Lease: 3 * time.Second}} {
		if l := cfg.Limits[name]; !l.IsInFlight() || l.Slots() != want {
			t.Errorf("%s: %+v", name, l)
		}
	}
	const jobs = "\njobs: { x: { limits: [a] } }\n"
	for text, want := range map[string]string{
		"limits:\n  a: { in_flight: 0 }" + jobs:                                                                     `config.yaml:2:19: limits.a.in_flight: invalid number "0": want 1 to 1000000`,
		"limits:\n  a: { in_flight: -3 }" + jobs:                                                                    `config.yaml:2:19`,
		"limits:\n  a: { in_flight: 010 }" + jobs:                                                                   `config.yaml:2:19: limits.a.in_flight: invalid number "010"`,
		"limits:\n  a: { in_flight: many }" + jobs:                                                                  `config.yaml:2:19`,
		"limits:\n  a: { in_flight: 2000000 }" + jobs:                                                               `config.yaml:2:19`,
		"limits:\n  a: { in_flight: 4, rate: 10/1s }" + jobs:                                                        `config.yaml:2:28: limits.a.rate: does not go with in_flight`,
		"limits:\n  a: { in_flight: 4, lease: 2s }" + jobs:                                                          `config.yaml:2:29: limits.a.lease: invalid duration 2s: want 3s or more`,
		"limits:\n  a: { in_flight: 4, lease: 25h }" + jobs:                                                         `config.yaml:2:29: limits.a.lease: invalid duration 25h0m0s: want 3s to 24h`,
		"limits:\n  a: { rate: 10/1s, lease: 5s }" + jobs:                                                           `config.yaml:2:28: limits.a.lease: needs in_flight`,
		"limits:\n  a: { in_flight: 4, window: calendar }" + jobs:                                                   `limits.a.window: does not go with in_flight`,
		"limits:\n  a: { in_flight: 4, key: nonsense }" + jobs:                                                      `limits.a.key`,
		"limits:\n  a: { in_flight: 4 }\njobs: { x: { limits: [a], permits: { a: 2 } } }\n":                         `jobs.x.permits.a: "a" is a limit in flight: a job takes one slot of it`,
		"limits:\n  a: { in_flight: 4 }\njobs: { x: { limits: [a], pause_on_429: [a] } }\n":                         `"a" is a limit in flight, which cannot pause`,
		"limits:\n  a: { in_flight: 4 }\n  b: { rate: 5/1s }\njobs: { x: { limits: [a, b], permits: { b: 6 } } }\n": `more than limit "b" ever gives`,
	} {
		if _, err := Parse("config.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", text, err, want)
		}
	}
}
