package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// summary is the result of the demo. Its JSON is a contract.
type summary struct {
	Jobs         int     `json:"jobs"`
	Done         int     `json:"done"`
	Failed       int     `json:"failed"`
	Seconds      float64 `json:"seconds"`
	IdealSeconds float64 `json:"ideal_seconds"`
	Limit        int     `json:"limit"`
	IntervalMS   int64   `json:"interval_ms"`
	Peak         int     `json:"peak"`
	Refused      int     `json:"refused"`
}

// good reports whether every job was done and the API had nothing to refuse.
func (s summary) good() bool {
	return s.Done == s.Jobs && s.Failed == 0 && s.Refused == 0
}

// writeJSON writes the summary as one line.
func (s summary) writeJSON(w io.Writer) error { return json.NewEncoder(w).Encode(s) }

// writeText writes the summary for people: the verdict, and why.
func (s summary) writeText(w io.Writer) {
	verdict := "As it should be: nothing was refused, and no time was lost."
	switch {
	case s.Refused > 0:
		verdict = "The limit was broken: the API had to refuse requests. On a machine that is short of CPU, a request can\nreach the API later than its guard allows. Run the demo again, with less beside it."
	case s.Failed > 0:
		verdict = "Some jobs failed."
	case s.Done < s.Jobs:
		verdict = "Stopped before all jobs were done."
	case s.Seconds > 1.10*s.IdealSeconds:
		verdict = "The limit held, but this machine was too busy to keep up with it."
	}
	interval := time.Duration(s.IntervalMS) * time.Millisecond
	fmt.Fprintf(w, "%s\n\n", verdict)
	fmt.Fprintf(w, "  jobs      %d of %d done, %d failed\n", s.Done, s.Jobs, s.Failed)
	fmt.Fprintf(w, "  time      %.2f s from first to last request; the limit and its guard take %.2f s\n", s.Seconds, s.IdealSeconds)
	fmt.Fprintf(w, "  busiest   %d requests within any %v; the API allows %d\n", s.Peak, interval, s.Limit)
	fmt.Fprintf(w, "  refused   %d\n", s.Refused)
}
