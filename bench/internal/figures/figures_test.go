package figures

import (
	"slices"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		xs   []float64
		want float64
	}{
		{[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3},
	} {
		before := slices.Clone(tt.xs)
		if got := Median(tt.xs); got != tt.want {
			t.Errorf("median of %v is %v, want %v", tt.xs, got, tt.want)
		}
		if !slices.Equal(tt.xs, before) {
			t.Errorf("Median changed %v to %v", before, tt.xs)
		}
	}
}

// threeRounds are rounds in which the machine became slower each time, and in which b was
// missing once.
func threeRounds() *Rounds {
	var r Rounds
	for round, slow := range []float64{1, 2, 10} {
		r.Add("a", round, Figures{CPUPerPermit: 5 * slow, Busiest: 100 + 10*float64(round%2)})
		if round != 1 {
			r.Add("b", round, Figures{CPUPerPermit: 20 * slow, Busiest: 0})
		}
	}
	return &r
}

func TestFigure(t *testing.T) {
	r := threeRounds()
	tests := []struct {
		peer   string
		metric Metric
		want   float64
		known  bool
	}{
		{"a", CPUPerPermit, 10, true},
		{"b", CPUPerPermit, 110, true},
		{"a", Busiest, 110, true}, // the worst, not the median
		{"a", Jain, 0, false},
		{"c", CPUPerPermit, 0, false},
	}
	for _, tt := range tests {
		if got, known := r.Figure(tt.peer, tt.metric); got != tt.want || known != tt.known {
			t.Errorf("%s of %s: %v %v, want %v %v", tt.metric, tt.peer, got, known, tt.want, tt.known)
		}
	}
	if got := r.Peers(); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("peers %v", got)
	}
}

func TestRatioIsOfRounds(t *testing.T) {
	r := threeRounds()
	if got, known := r.Ratio(CPUPerPermit, "b", "a"); got != 4 || !known {
		t.Errorf("%v %v, want 4: of rounds, not of medians", got, known)
	}
	if got, known := r.Ratio(Busiest, "a", "b"); known {
		t.Errorf("%v, want none: nothing can be divided by 0", got)
	}
	if got, known := r.Ratio(CPUPerPermit, "a", "c"); known {
		t.Errorf("%v, want none: c was not measured", got)
	}
}

func TestTarget(t *testing.T) {
	r := threeRounds()
	tests := []struct {
		name       string
		target     Target
		known, yes bool
	}{
		{"ratio reached", Target{Metric: CPUPerPermit, Peer: "a", To: "b", Bound: 0.25}, true, true},
		{"ratio missed", Target{Metric: CPUPerPermit, Peer: "a", To: "b", Bound: 0.24}, true, false},
		{"at least, reached", Target{Metric: CPUPerPermit, Peer: "b", To: "a", AtLeast: true, Bound: 4}, true, true},
		{"at least, missed", Target{Metric: CPUPerPermit, Peer: "b", To: "a", AtLeast: true, Bound: 4.1}, true, false},
		{"one bad round is enough", Target{Metric: Busiest, Peer: "a", Bound: 100}, true, false},
		{"not measured is not reached", Target{Metric: CPUPerPermit, Peer: "a", To: "c", Bound: 1}, false, false},
		{"nor at least", Target{Metric: CPUPerPermit, Peer: "c", AtLeast: true, Bound: 0}, false, false},
	}
	for _, tt := range tests {
		if got := tt.target.Check(r); got.Known != tt.known || got.Yes != tt.yes {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}
