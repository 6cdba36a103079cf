package config

import (
	"strings"
	"testing"
)

// TestShareErrors: an invalid share is refused, with its position.
func TestShareErrors(t *testing.T) {
	for limit, want := range map[string]string{
		`{ rate: 1/1s, share: payload.t, weights: { acme: 0 } }`:                             "limits.a.weights.acme: invalid weight 0: want a number from 0.001 to 1000000",
		`{ rate: 1/1s, share: payload.t, weights: { acme: -5 } }`:                            "limits.a.weights.acme: invalid weight -5",
		`{ rate: 1/1s, share: payload.t, default_weight: 0 }`:                                "limits.a.default_weight: invalid weight 0",
		`{ rate: 1/1s, share: payload.t, weights: { acme: .nan } }`:                          "limits.a.weights.acme: invalid weight NaN",
		`{ rate: 1/1s, share: payload.t, key: payload.t }`:                                   "limits.a.share: the same as the key",
		`{ rate: 1/1s, share: payload.t, type: per_client }`:                                 "limits.a.share: a per_client limit",
		`{ rate: 1/1s, share: tenant }`:                                                      `limits.a.share: invalid path "tenant"`,
		`{ rate: 1/1s, weights: { acme: 5 } }`:                                               "limits.a.weights: needs limits.a.share",
		`{ rate: 1/1s, default_weight: 5 }`:                                                  "limits.a.default_weight: needs limits.a.share",
		`{ rate: 1/1s, share: payload.t, weights: { "a\tb": 5 } }`:                           "the tenant has control characters",
		`{ rate: 1/1s, share: payload.t, weights: { ` + strings.Repeat("x", 129) + `: 5 } }`: "the tenant has 129 bytes: want 128 at most",
		`{ rate: 1/1s, share: payload.t, weights: { acme: much } }`:                          "",
	} {
		_, err := Parse("config.yaml", []byte("limits: { a: "+limit+" }\njobs: { x: { limits: [a] } }\n"))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "config.yaml:1:") {
			t.Errorf("%s: got %v, want its position and %q", limit, err, want)
		}
	}
	_, err := Parse("config.yaml", []byte("limits: { a: { rate: 1/1s, share: payload.t } }\njobs: { x: { limits: [a], hold: forever } }\n"))
	if err == nil || !strings.Contains(err.Error(), "jobs.x.hold: forever keeps jobs in their processes") {
		t.Errorf("hold: forever: %v", err)
	}
}

// TestWeights: a tenant has its own weight, or the common one, which is 1.
func TestWeights(t *testing.T) {
	cfg, err := Parse("config.yaml", []byte(`
limits:
  a: { rate: 1/1s, share: payload.t, weights: { acme: 2.5, 7: 3 }, default_weight: 0.5 }
  b: { rate: 1/1s, share: header.tenant, key: payload.account }
jobs: { x: { limits: [a, b] } }
`))
	if err != nil {
		t.Fatal(err)
	}
	for tenant, want := range map[string]float64{"acme": 2.5, "7": 3, "other": 0.5} {
		if got := cfg.Limits["a"].WeightOf(tenant); got != want {
			t.Errorf("%s has weight %v, want %v", tenant, got, want)
		}
	}
	if got := cfg.Limits["b"].WeightOf("acme"); got != 1 {
		t.Errorf("without weights: %v", got)
	}
}
