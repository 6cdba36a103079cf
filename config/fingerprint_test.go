package config_test

import (
	"testing"

	"github.com/jobthrottle/jobthrottle/config"
)

// TestFingerprint: it differs for configurations that treat jobs differently, and only for
// those.
func TestFingerprint(t *testing.T) {
	of := func(yaml string) string {
		t.Helper()
		cfg, err := config.Parse("config.yaml", []byte(yaml))
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Fingerprint()
	}
	const jobs = "jobs: { x: { limits: [api] } }\n"
	base := of("limits: { api: { rate: 5/1s } }\n" + jobs)
	for _, same := range []string{
		"jobs:\n  x:\n    limits: [api]\nlimits:\n  api: { rate: 5/1s, smooth: false }\n",
		"redis: { addrs: [\"10.0.0.1:6379\"], password: p }\nadmin: { addr: \"127.0.0.1:1\" }\npools: [ { name: a, concurrency: 2, queues: { low: 1 } } ]\nlimits: { api: { rate: 5/1s } }\n" + jobs,
	} {
		if got := of(same); got != base {
			t.Errorf("%s: %s, want %s", same, got, base)
		}
	}
	seen := map[string]bool{base: true}
	for _, other := range []string{
		"limits: { api: { rate: 6/1s } }\n" + jobs,
		"limits: { api: { rate: 5/1s, key: payload.a } }\n" + jobs,
		"limits: { api: { rate: 5/1s } }\njobs: { y: { limits: [api] } }\n",
		"limits: { api: { rate: 5/1s } }\njobs: { x: { limits: [api], permits: 2 } }\n",
		"limits: { api: { rate: 5/1s } }\njobs: { x: { limits: [api], pause_on_429: [] } }\n",
		"limits: { api: { rate: 5/1s } }\nhttp: { allow_hosts: [\"a.example.com\"] }\n" + jobs,
	} {
		got := of(other)
		if len(got) != 12 || seen[got] {
			t.Errorf("%s: %q is that of another", other, got)
		}
		seen[got] = true
	}
}
