package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/hiddenapi"
)

const rulePathHere = "../../" + rulePath

var us = contender{"jobthrottle", newOurs(rulePathHere)}

// held are the scenarios that every test run has time for. ADAPTIVE.md has all of them.
func held(all []named, names ...string) (some []named) {
	for _, n := range all {
		for _, name := range names {
			if n.Name == name {
				some = append(some, n)
			}
		}
	}
	return some
}

// Two seeds of each row of ADAPTIVE.md: what it says holds.
func TestTargets(t *testing.T) {
	for _, tc := range []struct {
		name    string
		all     []named
		targets []target
	}{
		{"steady", held(steady(), "sliding, 10/s", "fixed, 10/s", "bucket, 100/s"), steadyTargets()},
		{"halved", held(halved(), "sliding"), halvedTargets()},
		{"doubled", held(doubled(), "fixed"), doubledTargets()},
		{"shared", held(shared(), "sliding"), sharedTargets()},
		{"failing", held(failing(), "sliding"), failingTargets()},
		{"late", held(late(), "sliding"), lateTargets()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if len(tc.all) == 0 {
				t.Fatal("no such scenario")
			}
			r, err := runAll(tc.all, us, 2)
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range tc.all {
				for _, x := range tc.targets {
					if s := over(r[n.Name], x.of, x.largest); !x.reached(s.Median) {
						t.Errorf("%s: %s: %s (worst: %s with seed %d), want %s", n.Name, x.What, show(x, s.Median), show(x, s.Worst), s.Seed, x.Want)
					}
				}
			}
		})
	}
}

// ADAPTIVE.md is what the rule of today gives, at night: it takes some minutes.
func TestAdaptiveIsUpToDate(t *testing.T) {
	if os.Getenv("JOBTHROTTLE_NIGHTLY") != "1" {
		t.Skip("takes some minutes; JOBTHROTTLE_NIGHTLY=1 runs it")
	}
	dir := t.TempDir()
	if err := bench(book{seeds: 10, only: regexp.MustCompile(""), ours: us}, dir, io.Discard); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(dir, "ADAPTIVE.md"))
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../ADAPTIVE.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("ADAPTIVE.md is not what go run ./bench/adapt writes")
	}
}

// A run depends on its seed, and only on that.
func TestSameSeed(t *testing.T) {
	s := scenario{Kind: hiddenapi.Fixed, Cap: 20, Workers: 4, Windows: 30}
	for _, c := range append(peers(), us) {
		one, err := run(s, 7, c.With)
		if err != nil {
			t.Fatal(err)
		}
		two, err := run(s, 7, c.With)
		if err != nil {
			t.Fatal(err)
		}
		other, err := run(s, 8, c.With)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(one.seen, two.seen) || !reflect.DeepEqual(one.limits, two.limits) {
			t.Errorf("%s: two runs of one seed differ", c.Name)
		}
		if reflect.DeepEqual(one.seen, other.seen) {
			t.Errorf("%s: two seeds give the same run", c.Name)
		}
	}
}

// For a small limit each refusal counts: if an API accepts 10 a second, finding that costs at
// most one request of a hundred in the first 60 windows, with most seeds.
func TestSmallLimits(t *testing.T) {
	for _, kind := range []hiddenapi.Kind{hiddenapi.Fixed, hiddenapi.Bucket} {
		var refused []float64
		for seed := range uint64(9) {
			w, err := run(scenario{Kind: kind, Cap: 10, Workers: workers(seed + 1), Windows: 60}, seed+1, us.With)
			if err != nil {
				t.Fatal(err)
			}
			refused = append(refused, w.count().Early)
		}
		slices.Sort(refused)
		if refused[4] > 0.01 {
			t.Errorf("%s: %.2f %% of the requests were refused, of all seeds %.4f", kind, 100*refused[4], refused)
		}
	}
}

// Our limiter never grants more than its limit within an interval and the guard, except the
// reservations that a cut leaves alone.
func TestOursKeepsItsLimit(t *testing.T) {
	w, err := run(scenario{Kind: hiddenapi.Sliding, Cap: 50, Workers: 5, Windows: 40}, 3, us.With)
	if err != nil {
		t.Fatal(err)
	}
	o := w.rule.(*ours)
	highest := 0.
	for _, c := range w.limits {
		highest = max(highest, c.to)
	}
	first := 0
	for i, at := range o.log {
		for o.log[first] <= at-(window+guard) {
			first++
		}
		if n := i - first + 1; float64(n) > highest {
			t.Fatalf("%d grants in one window at %v, the highest limit is %v", n, at, highest)
		}
	}
}

// The figures of the SDKs' own tests: the rate after a refusal at 10 a second.
func TestCubic(t *testing.T) {
	for after, want := range []float64{7, 9.64893600966, 10.000030849917364, 10.453284520772092, 13.408697022224185, 21.26626835427364} {
		if got := cubic(float64(after), 10); math.Abs(got-want) > 1e-6 {
			t.Errorf("after %d s: %v, want %v", after, got, want)
		}
	}
}

// Loki's rule: one more for each success, half for each refusal, never below 1.
func TestLoki(t *testing.T) {
	w := &world{scenario: scenario{Cap: 100, Workers: 2}}
	r, err := newLoki(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		o    outcome
		want float64
	}{{accepted, 6}, {accepted, 7}, {refused, 4}, {failed, 4}, {refused, 2}, {refused, 1}, {refused, 1}, {accepted, 2}} {
		r.saw(0, 0, step.o)
		if got := r.(*loki).buckets[0].rate; got != step.want {
			t.Fatalf("%v, want %v", got, step.want)
		}
	}
}

// RudderStack's rule: two processes have a limit of 200 each. If half of the responses are
// refused, it falls by 0.3 x 0.5 of it. After two windows without a refusal it rises by a
// tenth.
func TestRudder(t *testing.T) {
	w := &world{scenario: scenario{Cap: 100, Workers: 2}}
	p := &rudderProcess{w: w, highest: 200, factor: 1, bucket: tokens{w: w, rate: 200, burst: 200}}
	r := &rudder{processes: []*rudderProcess{p}}
	w.rule = r
	w.at(window, p.fall)
	w.at(2*window, p.rise)
	r.saw(0, 0, refused)
	r.saw(0, 0, accepted)
	for _, step := range []struct {
		until time.Duration
		want  float64
	}{{window, 170}, {2 * window, 170}, {4 * window, 190}, {6 * window, 200}} {
		w.run(step.until)
		if math.Abs(r.limit()-step.want) > 1e-9 {
			t.Fatalf("after %v: %v, want %v", step.until, r.limit(), step.want)
		}
	}
}

// What the command writes: tables, and pictures that are XML.
func TestWrite(t *testing.T) {
	b := book{seeds: 1, ours: us, peers: map[string]results{}, rough: results{}}
	for _, all := range [][]named{steady(), halved()} {
		p := part{all: all, targets: steadyTargets(), results: results{}}
		for _, n := range all {
			p.results[n.Name] = []figures{{Near: 9, Early: 0.004, Used: 0.97, Refused: 7, Accepted: 1000}}
		}
		b.parts = append(b.parts, p)
	}
	b.steady = b.parts[0].results
	for _, n := range scattered() {
		b.rough[n.Name] = []figures{{Near: -1}}
	}
	for _, c := range peers() {
		b.peers[c.Name] = results{}
		for _, n := range steady() {
			b.peers[c.Name][n.Name] = []figures{{Used: 0.99, Refused: 70, Accepted: 900}}
		}
	}
	dir := t.TempDir()
	if err := b.drawAll(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ADAPTIVE-steady.svg", "ADAPTIVE-changes.svg"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(bytes.NewReader(text)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for _, want := range []string{"jobthrottle", "AWS", "Loki", "RudderStack"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %s", name, want)
			}
		}
	}
	var out strings.Builder
	if err := b.write(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"10.0x (AWS)", "0.980x of the best", "AWS uses more of the limit with: sliding, 10/s (99.0 % against 97.0 %)", "never"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("ADAPTIVE.md lacks %q:\n%s", want, out.String())
		}
	}
}
