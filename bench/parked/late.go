package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/wanted"
)

// report prints how late jobs started, each after its own due time.
func report(late []time.Duration, missed *wanted.Missed) {
	slices.Sort(late)
	at := func(share float64) time.Duration {
		return late[int(share*float64(len(late)-1))].Round(time.Millisecond)
	}
	over := 0
	for _, l := range late {
		if l.Seconds() > wantedLate {
			over++
		}
	}
	row := fmt.Sprintf("%d lines of one job each", len(late))
	fmt.Printf("%s: started p50 %v, p99 %v, at most %v after they were due; %d too late; wanted: %s\n", row, at(0.5), at(0.99), at(1), over,
		missed.AtMost(row, "latest start in s", late[len(late)-1].Seconds(), wantedLate))
}
