package config

import "testing"

// TestWaiting: how many jobs may wait is four times the slots, so that a burst finds them here.
// Where each worker has permits of its own it is less: jobs that wait in one worker cannot use those
// of another.
func TestWaiting(t *testing.T) {
	for _, tt := range []struct {
		limits, of     string
		concurrency    int
		max            int
		all, notCalled int
	}{
		{"{ a: { rate: 1/1s } }", "a", 20, 0, 80, 20},
		{"{ a: { rate: 1/1s } }", "a", 20, 7, 7, 7},
		{"{ a: { rate: 1/1s }, b: { rate: 1/1s, type: per_client } }", "a, b", 20, 0, 10, 10},
		{"{ b: { rate: 1/1s, type: per_client } }", "b", 1, 0, 1, 1},
		{"{ b: { rate: 1/1s, type: per_client } }", "b", 20, 100, 100, 100},
	} {
		cfg, err := Parse("config.yaml", []byte("limits: "+tt.limits+"\njobs: { x: { limits: ["+tt.of+"] } }\n"))
		if err != nil {
			t.Fatal(err)
		}
		if all, notCalled := cfg.Waiting(Pool{Concurrency: tt.concurrency, MaxWaiting: tt.max}); all != tt.all || notCalled != tt.notCalled {
			t.Errorf("%+v: %d, %d of them not called", tt, all, notCalled)
		}
	}
}
