package main

import (
	"fmt"
	"slices"
	"time"
)

// report prints how late jobs started, each after its own due time.
func report(late []time.Duration) {
	slices.Sort(late)
	at := func(share float64) time.Duration {
		return late[int(share*float64(len(late)-1))].Round(time.Millisecond)
	}
	over := 0
	for _, l := range late {
		if l > time.Second {
			over++
		}
	}
	fmt.Printf("%d lines of one job each: started p50 %v, p99 %v, at most %v after they were due; %d later than 1s\n", len(late), at(0.5), at(0.99), at(1), over)
}
