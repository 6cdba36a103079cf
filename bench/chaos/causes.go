//go:build unix

package main

import (
	"net/http"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/fault"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/record"
	"github.com/jobthrottle/jobthrottle/internal/operator"
)

// Why a job runs again, beside the runs of an operator.
const (
	refused  = "it failed: it was refused"
	givenUp  = "it failed: its request was given up"
	died     = "its lease lapsed: its worker was killed"
	offClock = "its lease lapsed: the clock of a worker was an hour off"
)

const (
	// ack is how long after its answer a job is taken for done at the latest, if nothing is broken.
	ack = 2 * time.Second
	// onWay is how long before it arrived a request may have been sent.
	onWay = 100 * time.Millisecond
	// held is how long before its start a job is active: it waits in its worker.
	held = 5 * time.Second
	// queued is how long after a worker with a fast clock has made a scheduled job pending the job may start.
	queued = 30 * time.Second
)

// causes are why jobs of a run may have started again, or before they were due. Who was cancelled may
// have been answered at the same time.
func causes(run check.Run, cancelled []operator.Cause) (causes []operator.Cause) {
	last := map[string]time.Duration{} // arrival of each process
	for _, a := range run.Arrivals {
		last[a.Worker] = a.At
	}
	cancels := map[string][]operator.Cause{}
	for _, c := range cancelled {
		cancels[c.Job] = append(cancels[c.Job], c)
	}
	for _, a := range run.Arrivals {
		why := lapsed(run, a, last[a.Worker])
		switch {
		case a.Status != 0 && a.Status != http.StatusOK:
			why = refused
		case why == "" && a.Status == 0:
			why = givenUp
		}
		for _, c := range cancels[a.Job] {
			if a.At-onWay <= c.At && c.At <= done(run, a) {
				why = c.Why
			}
		}
		if why != "" {
			causes = append(causes, operator.Cause{Job: a.Job, At: a.Ended, Why: why})
		}
		for _, p := range run.Phases {
			if p.Fault == fault.Clock && p.Begin <= a.At && a.At <= p.End+queued {
				causes = append(causes, operator.Cause{Job: a.Job, At: p.Begin, Early: true})
			}
		}
	}
	return causes
}

// done is until when an arrival's job may be active: its result is written, and it is taken for done,
// once nothing is broken any more.
func done(run check.Run, a record.Arrival) time.Duration {
	by := a.Ended + ack
	for _, p := range run.Phases {
		if p.Begin <= by && a.Ended <= p.End {
			by = max(by, p.End+ack)
		}
	}
	return by
}

// lapsed says why the lease of an arrival's job may have lapsed. The arrival's process sent its last
// request at a time.
func lapsed(run check.Run, a record.Arrival, last time.Duration) string {
	for _, p := range run.Phases {
		switch {
		case p.Fault == fault.KillWorker && a.At <= p.End && a.Ended >= p.Begin-ack && last < p.End:
			return died
		case p.Fault == fault.Clock && a.At-held <= p.End && a.Ended+ack >= p.Begin:
			return offClock
		}
	}
	return ""
}
