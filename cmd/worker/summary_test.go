package main

import (
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/strictapi"
)

func TestSummary(t *testing.T) {
	allRight := summary{
		Jobs: 400, Done: 400, Seconds: 7.1, IdealSeconds: 7.07, Limit: 50, IntervalMS: 1000, Peak: 50,
	}
	tests := []struct {
		name    string
		change  func(*summary)
		good    bool
		verdict string
	}{
		{"all right", func(*summary) {}, true, "As it should be"},
		{"refused", func(s *summary) { s.Refused, s.Peak = 1, 51 }, false, "limit was broken"},
		{"failed", func(s *summary) { s.Done, s.Failed = 399, 1 }, false, "failed"},
		{"stopped", func(s *summary) { s.Done = 100 }, false, "Stopped"},
		{"slow", func(s *summary) { s.Seconds = 8 }, true, "too busy"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := allRight
			tt.change(&s)
			if s.good() != tt.good {
				t.Errorf("good is %v, want %v", s.good(), tt.good)
			}
			var text strings.Builder
			s.writeText(&text)
			if verdict, _, _ := strings.Cut(text.String(), "\n"); !strings.Contains(verdict, tt.verdict) {
				t.Errorf("verdict %q, want %q in it", verdict, tt.verdict)
			}
		})
	}
}

func TestSummaryJSON(t *testing.T) {
	s := summary{
		Jobs: 400, Done: 399, Failed: 1, Seconds: 7.125, IdealSeconds: 7.07, Limit: 50, IntervalMS: 1000, Peak: 50, Refused: 2,
	}
	want := `{"jobs":400,"done":399,"failed":1,"seconds":7.125,"ideal_seconds":7.07,"limit":50,"interval_ms":1000,"peak":50,"refused":2}` + "\n"
	var got strings.Builder
	if err := s.writeJSON(&got); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("got  %swant %s", got.String(), want)
	}
}

func TestView(t *testing.T) {
	report := strictapi.Report{
		Now: 25, Peak: 50, Refused: 3,
		Jobs:    map[string]int{"a": 1, "b": 1},
		Workers: map[string]strictapi.Share{"w2": {Requests: 7}, "w1": {Requests: 5}},
	}
	t.Run("a line a second", func(t *testing.T) {
		var out strings.Builder
		v := newView(&out, 4, 50, time.Second)
		for elapsed := time.Duration(0); elapsed <= 2*time.Second; elapsed += 100 * time.Millisecond {
			v.draw(elapsed, report)
		}
		lines := strings.SplitAfter(out.String(), "\n")
		if len(lines) != 4 || lines[3] != "" {
			t.Fatalf("%d lines, want 3:\n%s", len(lines)-1, out.String())
		}
		if want := "  1.0s     2 of 4 jobs   25 of 50 in the last 1s  busiest 50  refused 3\n"; lines[1] != want {
			t.Errorf("got  %q\nwant %q", lines[1], want)
		}
	})
	t.Run("redrawn on a terminal", func(t *testing.T) {
		var out strings.Builder
		v := newView(&out, 4, 50, time.Second)
		v.terminal = true
		v.draw(0, report)
		first := out.Len()
		v.draw(time.Second, report)
		second := out.String()[first:]
		if !strings.HasPrefix(second, "\x1b[3A") || strings.Count(second, "\n") != 3 {
			t.Errorf("the second draw does not replace the first: %q", second)
		}
		for _, want := range []string{strings.Repeat("█", 25) + strings.Repeat("░", 25), "25 of 50", "2 of 4", "refused 3", "by worker: 5 7"} {
			if !strings.Contains(second, want) {
				t.Errorf("%q lacks %q", second, want)
			}
		}
	})
	for n, want := range map[int]int{0: 0, 1: 1, 50: 50, 51: 50, 1000: 50} {
		if got := strings.Count((&screen{}).bar(n, 50), "█"); got != want {
			t.Errorf("bar of %d: %d filled, want %d", n, got, want)
		}
	}
}
