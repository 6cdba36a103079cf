package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/hiddenapi"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// TestAdaptiveDemo: no job is lost, the limit goes up from where it begins and down when the API
// halves its own, and a person sees both. How near it comes depends on the machine, as in TestDemo.
func TestAdaptiveDemo(t *testing.T) {
	t.Parallel()
	h := hidden{jobs: 160, quota: 20, start: 5}
	var stdout, stderr bytes.Buffer
	err := runAdaptiveDemo(t.Context(), h, true, &stdout, &stderr)
	line, rest, _ := strings.Cut(stdout.String(), "\n")
	var f foundLimit
	if err := json.Unmarshal([]byte(line), &f); err != nil || rest != "" {
		t.Fatalf("%v in %q, then %q\n%s", err, line, rest, &stderr)
	}
	t.Log(line)
	if err != nil || f.Jobs != h.jobs || f.Done != h.jobs || f.Failed != 0 || f.Requests != f.Done+f.Refused {
		t.Errorf("%v, %s\n%s", err, line, &stderr)
	}
	if len(f.Found) != 2 || f.Found[0] <= f.Start || f.Found[1] >= f.Found[0] || f.Cuts == 0 || f.Refused == 0 {
		t.Errorf("found %v, from %d, with %d cuts and %d refused: want up, and down again", f.Found, f.Start, f.Cuts, f.Refused)
	}
	for _, want := range []string{"(the API takes 20)", "(the API takes 10, half of before)", "known: nothing yet", "known: at least", "jobs      160 of 160 done"} {
		if !strings.Contains(stderr.String(), want) {
			t.Errorf("no %q in:\n%s", want, &stderr)
		}
	}
}

func TestFoundLimitText(t *testing.T) {
	f := foundLimit{Jobs: 600, Done: 600, Start: 5, Limits: []int64{40, 20}, Found: []int64{39, 19}, Cuts: 2, Requests: 610, Refused: 10}
	for _, tt := range []struct {
		change func(*foundLimit)
		want   string
	}{
		{func(*foundLimit) {}, "The limit was found, and found again when the API halved it."},
		{func(f *foundLimit) { f.Found = []int64{25, 19} }, "too busy"},
		{func(f *foundLimit) { f.Found, f.Limits = []int64{39}, []int64{40} }, "too busy"},
		{func(f *foundLimit) { f.Done = 599 }, "Stopped before all jobs were done."},
		{func(f *foundLimit) { f.Failed = 1 }, "Some jobs failed."},
	} {
		f := f
		tt.change(&f)
		var out bytes.Buffer
		f.writeText(&out)
		if verdict, _, _ := strings.Cut(out.String(), "\n"); !strings.Contains(verdict, tt.want) {
			t.Errorf("%+v: %q, want %q", f, verdict, tt.want)
		}
	}
}

func TestSearchOnATerminal(t *testing.T) {
	var out bytes.Buffer
	s := &search{screen: screen{out: &out, terminal: true}, hidden: theHidden(), takes: 40, limit: 20}
	s.saw(0, 0)
	s.saw(time.Second, 20)
	s.draw(time.Second, hiddenapi.Report{Accepted: 20, Refused: 1}, operate.Learnt{Limit: 20, Accepted: 15, Most: 30})
	s.draw(2*time.Second, hiddenapi.Report{Accepted: 20, Refused: 1}, operate.Learnt{Limit: 20, Recovers: true})
	for _, want := range []string{"20; the API takes 40", "20 taken", "20 of 600", "refused 1   the workers know: 15 to 30", "\x1b[4A", "the API has just refused"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
}
