package fair

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// TestDealScenarios: who gets what, a step a line.
func TestDealScenarios(t *testing.T) {
	one := func(finish, weight float64, cost, jobs int64) Tenant {
		return Tenant{Finish: finish, Weight: weight, Cost: cost, Jobs: jobs}
	}
	inf := math.Inf(1)
	for _, tt := range []struct {
		name    string
		v       float64
		tenants []Tenant
		permits int64
		most    float64
		want    string
		after   float64
	}{
		{"nobody", 3, nil, 10, inf, "[]", 3},
		{"one alone has all", 0, []Tenant{one(50, 1, 1, 100)}, 10, inf, "[10]", 59},
		{"halves", 0, []Tenant{one(0, 1, 1, 100), one(0, 1, 1, 100)}, 10, inf, "[5 5]", 4},
		{"by weight", 0, []Tenant{one(0, 3, 1, 100), one(0, 1, 1, 100)}, 8, inf, "[6 2]", 5. / 3},
		{"what one leaves, the other has", 0, []Tenant{one(0, 1, 1, 2), one(0, 1, 1, 100)}, 10, inf, "[2 8]", 7},
		{"one that comes back has no credit", 40, []Tenant{one(0, 1, 1, 100), one(41, 1, 1, 100)}, 10, inf, "[6 4]", 45},
		{"the last may cost more than is left", 0, []Tenant{one(0, 1, 8, 9), one(1, 1, 1, 9)}, 7, inf, "[8 0]", 0},
		{"nobody before those who are not known", 0, []Tenant{one(0, 1, 1, 9), one(5, 1, 1, 9)}, 9, 2, "[3 0]", 2},
		{"at the virtual time nobody is behind", 7, []Tenant{one(0, 1, 1, 9)}, 1, 2, "[1]", 7},
		{"the earlier where tags are equal", 0, []Tenant{{Weight: 1, Cost: 1, Jobs: 1, Since: 9}, {Weight: 1, Cost: 1, Jobs: 1, Since: 4}}, 1, inf, "[0 1]", 0},
		{"no jobs, no permits", 0, []Tenant{one(0, 1, 1, 0)}, 5, inf, "[0]", 0},
	} {
		got, after := Deal(tt.v, tt.tenants, tt.permits, 1000, tt.most)
		if fmt.Sprint(got) != tt.want || math.Abs(after-tt.after) > 1e-9 {
			t.Errorf("%s: got %v and %v, want %s and %v", tt.name, got, after, tt.want, tt.after)
		}
	}
}

// TestAgainstIdeal: tenants come and go, with costs and weights at random, and permits are
// dealt in rounds of any size. While a tenant has jobs, it gets what an ideal fair queue, which
// serves all at the same time, would give it. It never gets less by more than the largest costs
// of the others and its own.
func TestAgainstIdeal(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 7))
		n := 2 + random.IntN(6)
		type tenant struct {
			jobs   []int64 // their costs
			finish float64
			weight float64
			got    float64 // since it has had jobs
			ideal  float64
		}
		tenants := make([]*tenant, n)
		for i := range tenants {
			tenants[i] = &tenant{weight: float64(1 + random.IntN(9))}
		}
		v, dearest := 0.0, 20.0
		for range 300 {
			for _, x := range tenants {
				if random.IntN(8) == 0 {
					if len(x.jobs) == 0 {
						x.got, x.ideal = 0, 0
					}
					for range random.IntN(40) {
						x.jobs = append(x.jobs, 1+random.Int64N(int64(dearest)))
					}
				}
			}
			permits := random.Int64N(60)
			for {
				now := make([]Tenant, n)
				busy := 0.0
				for i, x := range tenants {
					now[i] = Tenant{Finish: x.finish, Weight: x.weight, Jobs: int64(len(x.jobs))}
					if len(x.jobs) > 0 {
						now[i].Cost, now[i].Jobs = x.jobs[0], 1 // each may cost something else
						busy += x.weight
					}
				}
				next := -1
				// The one that is next, by whatever permits it needs.
				got, after := Deal(v, now, 1, 1, math.Inf(1))
				least := math.Inf(1)
				for i, of := range now {
					if of.Jobs > 0 && of.Start(v) < least {
						next, least = i, of.Start(v)
					}
				}
				if next < 0 {
					break
				}
				if got[next] == 0 {
					t.Fatalf("seed %d: %d is next and gets nothing", seed, next)
				}
				_ = after
				x := tenants[next]
				cost := x.jobs[0]
				if cost > permits {
					break
				}
				permits -= cost
				for _, y := range tenants {
					if len(y.jobs) > 0 {
						y.ideal += float64(cost) * y.weight / busy
					}
				}
				x.finish = least + float64(cost)/x.weight
				x.got += float64(cost)
				v = math.Max(v, least)
				x.jobs = x.jobs[1:]
				for i, y := range tenants {
					if len(y.jobs) == 0 && y != x {
						continue
					}
					if behind := y.ideal - y.got; behind > dearest*float64(n)+1e-6 {
						t.Fatalf("seed %d: tenant %d (weight %v) is %.1f permits behind an ideal queue", seed, i, y.weight, behind)
					}
				}
			}
		}
	}
}

// TestWeightsOverLooks: however permits come due, three tenants that always have jobs
// get them by weight, and their costs make no difference.
func TestWeightsOverLooks(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 8))
		weights, finish, got := []float64{5, 3, 1}, make([]float64, 3), make([]float64, 3)
		v, sum := 0.0, 0.0
		for sum < 20_000 {
			tenants := make([]Tenant, 3)
			for i := range tenants {
				tenants[i] = Tenant{Finish: finish[i], Weight: weights[i], Cost: 1 + random.Int64N(9), Jobs: 1000}
			}
			dealt, after := Deal(v, tenants, random.Int64N(200), 1+random.Int64N(50), math.Inf(1))
			for i, n := range dealt {
				finish[i] = math.Max(finish[i], v) + float64(n)/weights[i]
				got[i], sum = got[i]+float64(n), sum+float64(n)
			}
			v = after
		}
		for i, w := range weights {
			if off := math.Abs(got[i]/(sum*w/9) - 1); off > 0.02 {
				t.Errorf("seed %d: weight %v got %.0f of %.0f: %.1f %% off", seed, w, got[i], sum, 100*off)
			}
		}
	}
}

func TestChecks(t *testing.T) {
	for _, w := range []float64{0, -1, math.NaN(), math.Inf(1), 1e-4, 2e6} {
		if CheckWeight(w) == nil {
			t.Errorf("weight %v is taken", w)
		}
	}
	if err := CheckWeight(2.5); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"", "a\tb", "\xff", string(make([]byte, 200))} {
		if CheckTenant(name) == nil {
			t.Errorf("tenant %q is taken", name)
		}
	}
	if err := CheckTenant("müller:7 {x}"); err != nil {
		t.Error(err)
	}
}
