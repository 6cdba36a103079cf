package fleet

import (
	"math"
	"slices"
	"testing"
	"time"
)

// at are uses of one permit at these milliseconds.
func at(ms ...int) (uses []Use) {
	for _, x := range ms {
		uses = append(uses, Use{At: time.Duration(x) * time.Millisecond, Permits: 1})
	}
	return uses
}

func TestBusiest(t *testing.T) {
	big := at(0, 10, 500)
	big[1].Permits = 7
	tests := []struct {
		name string
		uses []Use
		want int64
	}{
		{"nothing", nil, 0},
		{"one", at(5), 1},
		{"an interval later is another window", at(0, 1000), 1},
		{"just before it is not", at(1, 1000), 2},
		{"not from the first on", at(0, 900, 950, 1500, 1899), 4},
		{"permits, not uses", big, 9},
	}
	for _, tt := range tests {
		if got := Busiest(tt.uses, time.Second); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestLoad(t *testing.T) {
	got := Load(at(0, 150, 160, 320), 100*time.Millisecond, 100*time.Millisecond, 500*time.Millisecond)
	want := []int64{1, 0, 2, 0, 1, 0} // what is used between two steps shows at the later one
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestLateness(t *testing.T) {
	ms := func(xs ...int) (ds []time.Duration) {
		for _, x := range xs {
			ds = append(ds, time.Duration(x)*time.Millisecond)
		}
		return ds
	}
	two := Limit{Permits: 2, Interval: time.Second}
	weighed := at(0, 1003)
	weighed[0].Permits, weighed[1].Permits = 2, 2
	tests := []struct {
		name   string
		uses   []Use
		limits []Limit
		want   []time.Duration
	}{
		{"nothing", nil, []Limit{two}, nil},
		{"counted from the first use", at(70, 72), []Limit{two}, ms(0, 2)},
		{"an interval after the one that makes room", at(0, 5, 1010, 1011), []Limit{two}, ms(0, 5, 6, 10)},
		{"lost time does not count again", at(0, 0, 5000, 5000, 6001, 6001), []Limit{two}, ms(0, 0, 1, 1, 4000, 4000)},
		{"too early", at(0, 0, 900), []Limit{two}, ms(-100, 0, 0)},
		{"by permits", weighed, []Limit{two}, ms(0, 3)},
		{"the later of two limits", at(0, 0, 1002, 5001), []Limit{two, {Permits: 3, Interval: 5 * time.Second}}, ms(0, 0, 1, 2)},
	}
	for _, tt := range tests {
		if got := Lateness(tt.uses, tt.limits); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestTook(t *testing.T) {
	uses := at(1, 2, 5, 11)
	uses[1].Goroutine, uses[3].Goroutine = 1, 1
	want := []time.Duration{1 * time.Millisecond, 2 * time.Millisecond, 4 * time.Millisecond, 9 * time.Millisecond}
	if got := Took(uses); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestJain(t *testing.T) {
	equal, unequal := at(0, 1), at(0, 1)
	equal[1].Client = 1
	tests := []struct {
		name string
		uses []Use
		want float64
	}{
		{"nobody got anything", nil, 0},
		{"all the same", equal, 1},
		{"one got everything", unequal, 0.5},
	}
	for _, tt := range tests {
		if got := Jain(tt.uses, 2); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestPercentile(t *testing.T) {
	var ascending []time.Duration
	for i := range time.Duration(200) {
		ascending = append(ascending, i)
	}
	tests := []struct {
		of   []time.Duration
		p    int
		want time.Duration
	}{
		{nil, 50, 0}, {ascending[7:8], 99, 7}, {ascending, 50, 100}, {ascending, 99, 198}, {ascending, 100, 199},
	}
	for _, tt := range tests {
		if got := Percentile(tt.of, tt.p); got != tt.want {
			t.Errorf("p%d of %d values: %d, want %d", tt.p, len(tt.of), got, tt.want)
		}
	}
}
