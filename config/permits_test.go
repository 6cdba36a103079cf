package config

import (
	"reflect"
	"strings"
	"testing"
)

// TestPermits: one cost, or a mapping from limits to costs, in every way that YAML
// has to write them.
func TestPermits(t *testing.T) {
	t.Setenv("TOKENS", "payload.tokens")
	byLimit := func(costs ...string) Permits {
		p := Permits{ByLimit: map[string]string{}}
		for i := 0; i < len(costs); i += 2 {
			p.ByLimit[costs[i]] = costs[i+1]
		}
		return p
	}
	for text, want := range map[string]Permits{
		"x: { limits: [7, b] }":                                                                         {},
		"x: { limits: [7, b], permits: }":                                                               {},
		"x: { limits: [7, b], permits: 3 }":                                                             {Each: "3"},
		"x: { limits: [7, b], permits: &n 3 }":                                                          {Each: "3"},
		"x: { limits: [7, b], permits: payload.n }":                                                     {Each: "payload.n"},
		"x: { limits: [7, b], permits: {} }":                                                            byLimit(),
		"x: { limits: [7, b], permits: { b: payload.a.b } }":                                            byLimit("b", "payload.a.b"),
		"x: { limits: [7, b], permits: { 7: 010, b: header.n } }":                                       byLimit("7", "010", "b", "header.n"),
		"x: { limits: [7, b], permits: { b: \"${TOKENS}\" } }":                                          byLimit("b", "payload.tokens"),
		"x:\n  limits: [7, b]\n  permits:\n    7: 2\n    b: payload.tokens\n":                           byLimit("7", "2", "b", "payload.tokens"),
		"y: { limits: [7, b], permits: &p { b: 3 } }\nx: { limits: [7, b], permits: *p }":               byLimit("b", "3"),
		"y: { limits: [7, b], permits: &n 4 }\nx: { limits: [7, b], permits: *n }":                      {Each: "4"},
		"y: { limits: [7, b], permits: &n 4 }\nx: { limits: [7, b], permits: { b: *n } }":               byLimit("b", "4"),
		"y: { limits: [7, b], permits: &p { b: 3 } }\nx: { limits: [7, b], permits: { <<: *p, 7: 2 } }": byLimit("b", "3", "7", "2"),
	} {
		cfg, err := Parse("config.yaml", []byte("limits: { 7: { rate: 100/1s }, b: { rate: 100/1s } }\njobs:\n  "+strings.ReplaceAll(text, "\n", "\n  ")))
		if err != nil {
			t.Errorf("%s:\n%v", text, err)
		} else if got := cfg.Jobs["x"].Permits; !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", text, got, want)
		}
	}
}
