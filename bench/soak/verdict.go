//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

const (
	sectionFile = "soak.md"

	// settledAfter is when processes have all that they need. The last minute may have at most
	// tolerance more. judgedFrom is how long a run must be for that to say something.
	settledAfter = 5 * time.Minute
	judgedFrom   = 10 * time.Minute
	tolerance    = 0.05
)

// verdict is the result of a run.
type verdict struct {
	opts     options
	faults   int
	acquired int64
	errors   int64
	judged   bool
	rows     []row
}

// row is one thing that must not grow: its mean in the minute after it settled, and in the last
// minute.
type row struct {
	what          string
	settled, last float64
	exact         bool // it must not grow at all
	show          func(float64) string
}

func (r row) grew() bool {
	if r.exact {
		return r.last > r.settled
	}
	return r.last > r.settled*(1+tolerance)
}

// judge compares the minute after the processes have settled with the last one. In a short run
// it compares a fifth of the run, after the first third, with the last fifth.
func (s *soak) judge() verdict {
	v := verdict{opts: s.opts, faults: s.faults, judged: s.opts.length >= judgedFrom}
	from, window := settledAfter, time.Minute
	if !v.judged {
		from, window = s.opts.length/3, s.opts.length/5
	}
	settled := slices.DeleteFunc(slices.Clone(s.samples), func(x sample) bool { return x.at < from || x.at >= from+window })
	last := slices.DeleteFunc(slices.Clone(s.samples), func(x sample) bool { return x.at < s.opts.length-window })
	add := func(what string, show func(float64) string, exact bool, of func(sample) float64) {
		v.rows = append(v.rows, row{what, mean(settled, of), mean(last, of), exact, show})
	}
	for i := range processes {
		add(fmt.Sprintf("RSS of process %d", i+1), megabytes, false, func(x sample) float64 { return float64(x.rss[i]) })
	}
	for i := range processes {
		add(fmt.Sprintf("goroutines of process %d", i+1), whole, false, func(x sample) float64 { return float64(x.goroutines[i]) })
	}
	add("memory of Redis", megabytes, false, func(x sample) float64 { return float64(x.redis.Used) })
	add("keys", whole, false, func(x sample) float64 { return float64(x.redis.Keys) })
	add("keys that do not expire", whole, true, func(x sample) float64 { return float64(x.redis.Lasting) })
	if n := len(s.samples); n > 0 {
		v.acquired, v.errors = s.samples[n-1].acquired, s.samples[n-1].errors
	}
	return v
}

// mean is 0 for no samples: a run that was cut short has no figures.
func mean(samples []sample, of func(sample) float64) float64 {
	var sum float64
	for _, x := range samples {
		sum += of(x)
	}
	return sum / float64(max(len(samples), 1))
}

// section is the part of RELIABILITY.md about this run.
func (v verdict) section() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## Soak\n\n`go run ./bench/soak --length %v --rate %d`: %d processes with %d waiters each, limiters that come and go, "+
		"%d faults.\n%d permits acquired, %.0f per second; %d calls to Redis failed and were made again.\n\n",
		v.opts.length, v.opts.rate, processes, waiters, v.faults, v.acquired, float64(v.acquired)/v.opts.length.Seconds(), v.errors)
	after := "after " + settledAfter.String()
	if !v.judged {
		after = "after a third"
		fmt.Fprintf(&b, "**A run shorter than %v judges nothing.**\n\n", judgedFrom)
	}
	fmt.Fprintf(&b, "| what | %s | at the end | | |\n| --- | --- | --- | --- | --- |\n", after)
	for _, r := range v.rows {
		said := "constant"
		if r.grew() {
			said = "grew"
		}
		if !v.judged {
			said = ""
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %+.1f %% | %s |\n", r.what, r.show(r.settled), r.show(r.last), 100*(r.last/max(r.settled, 1)-1), said)
	}
	return b.String()
}

// err names what has grown.
func (v verdict) err() error {
	var grown []string
	for _, r := range v.rows {
		if r.grew() {
			grown = append(grown, r.what)
		}
	}
	if !v.judged || len(grown) == 0 {
		return nil
	}
	return fmt.Errorf("after %v there was more than after %v: %s", v.opts.length, settledAfter, strings.Join(grown, ", "))
}

func megabytes(bytes float64) string { return fmt.Sprintf("%.1f MB", bytes/1e6) }

func whole(n float64) string { return fmt.Sprintf("%.0f", n) }
