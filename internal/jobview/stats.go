package jobview

import (
	"time"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// Stats counts what the jobs of a process did. The figures only grow, except Throttle.Waiting.
// The limiters of a keyed limit count together: there is an entry for each limit and job of the
// configuration, whatever values the jobs have.
type Stats struct {
	Throttle throttle.Stats
	Limits   []LimitStats // by name
	Slots    []SlotStats  // of limits in flight, by name
	Jobs     []JobStats   // by name; the last is of types that no pattern matches

	// Refused is the last call that Redis refused, whatever limit it was for; nil if there was none.
	Refused *Refused `json:"-"`
}

// OtherJobs is the name in Stats of jobs that the configuration does not have.
const OtherJobs = config.OtherJobs

// LimitStats counts for one limit of the configuration.
type LimitStats struct {
	Name     string
	Granted  int64 // permits that jobs took
	Returned int64 // those of them that Settle returned
	Denied   int64 // attempts put off because the permits were due too late, or others were in line
	Parked   int64 // times that a job got in line
	Paused   int64 // pauses because an API said to try later
	// DryRun says that the limit holds no job. WouldWait are the jobs that ran although it had
	// no permits for them, or would have been blocked by it.
	DryRun    bool
	WouldWait int64
}

// SlotStats counts for one limit in flight of the configuration.
type SlotStats struct {
	Name     string
	Held     int64 // slots that jobs got
	Running  int64 // jobs of this process that hold one now
	Parked   int64 // times that a job got in line
	Lost     int64 // slots that running jobs lost because Redis or the process did not answer for a lease
	Outlived int64 // handlers that ran on after that, while another job may have had the slot
	// DryRun says that the limit holds no job. WouldWait are the jobs that ran although it had
	// no slot for them, or would have been blocked by it.
	DryRun    bool
	WouldWait int64
}

// JobStats counts the attempts of one pattern's jobs.
type JobStats struct {
	Name   string
	Done   int64
	Failed int64
	PutOff int64 // by a limit, the API or max_in_flight: they use up no retry
	// Blocked are attempts of jobs that cannot run until something is fixed: see BlockedError.
	Blocked int64
	Waits   Waits // of attempts that got their permits, in this process
	// WholeWaits are the waits from a job's first arrival, when a process first took it from
	// its queue, to the start of its handler: in line, in processes, and between. They include
	// the wait for permits that a handler gets itself. A retry begins again.
	WholeWaits Waits
	// Handlers is how long handlers ran, without their waits for permits. Those that were put
	// off before they got their permits do not count.
	Handlers Waits
}

// Waits is a histogram of durations.
type Waits struct {
	Count   int64
	Sum     time.Duration
	Buckets [len(WaitBounds)]int64 // those that lasted at most as long as the bound
}

// WaitBounds are the bounds of the buckets of Waits.
var WaitBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond,
	500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 24 * time.Hour,
}
