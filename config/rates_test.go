package config

import (
	"reflect"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/throttle"
)

// TestValueRates: the values of a key have the limit's settings, at rates of their own.
func TestValueRates(t *testing.T) {
	cfg, err := Parse("config.yaml", []byte(`
limits: { a: { rate: 10/1s, key: payload.account, guard: 20ms, smooth: true, rates: { acme: 50/1s, 010: 7/1h } } }
jobs: { x: { limits: [a], permits: 50 } }
`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := cfg.Limits["a"].ValueRates()
	want := map[string]throttle.Rate{
		"acme": {Permits: 50, Interval: time.Second, Guard: 20 * time.Millisecond, Smooth: true, KeepAlive: time.Hour},
		"010":  {Permits: 7, Interval: time.Hour, Guard: 20 * time.Millisecond, Smooth: true, KeepAlive: 2 * time.Hour},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}
