package metrics

import "github.com/prometheus/client_golang/prometheus"

// The metrics. A test checks that docs/alerts.yaml and docs/grafana-dashboard.json use these
// names.
var (
	granted  = desc("permits_granted_total", "Permits that jobs of this worker took.", "limit")
	returned = desc("permits_returned_total", "Permits that jobs of this worker took and gave back, having cost less than they said.", "limit")
	denials  = desc("denials_total", "Attempts of this worker that a limit put off: the turn was further away than hold, or others were in line.", "limit")
	parked   = desc("jobs_parked_total", "Times that this worker put a job in line for a limit.", "limit")
	// only of limits with dry_run
	wouldWait = desc("dry_run_would_wait_total", "Jobs of this worker that a limit with dry_run would have made wait; they ran.", "limit")
	pauses    = desc("pauses_total", "Pauses that this worker began because an API said to try later.", "limit")

	slotsHeld     = desc("in_flight_slots_total", "Slots of a limit in flight that jobs of this worker got.", "limit")
	slotsRunning  = desc("in_flight_running", "Jobs of this worker that hold a slot of the limit in flight now.", "limit")
	slotsParked   = desc("in_flight_parked_jobs", "Jobs of the fleet that are parked for a slot of the limit in flight; of a limit with a key, of all its values. At least so many, if jobs of a queue wait for slots, or for something to be fixed, in more than 1000 lines.", "limit")
	slotsLost     = desc("in_flight_lost_total", "Slots that running jobs of this worker lost: their lease could not be renewed in time.", "limit")
	slotsOutlived = desc("in_flight_outlived_total", "Handlers of this worker that ran on after their lease, when another job may have had the slot.", "limit")

	attempts = desc("attempts_total", "Attempts of jobs that ended in this worker: done, failed, put_off, or blocked until somebody fixes something; the last two use up no retry.", "pattern", "outcome")
	waits    = desc("wait_seconds", "How long jobs waited in this worker for the permits they then got; the time they were parked is not in it.", "pattern")

	jobWaits = desc("job_wait_seconds", "How long jobs waited in all, parked or not: from when a worker first took them from their queue until they ran. A retry begins again.", "pattern")
	handlers = desc("handler_seconds", "How long handlers ran, without their waits for permits.", "pattern")

	waiters      = desc("waiters", "Requests for permits that wait in this worker now.")
	stalePermits = desc("permits_stale_total", "Permits of this worker that were exchanged because their time had passed.")
	latePermits  = desc("permits_late_total", "Permits of this worker that were used late because the round trip to Redis takes longer than half the guard.")
	redisCalls   = desc("redis_calls_total", "Script calls of this worker for permits.")
	redisErrors  = desc("redis_errors_total", "Script calls of this worker for permits that failed.")
	redisUp      = desc("redis_up", "1 if Redis answered this scrape; if 0, what is read from there is missing.")

	permits   = desc("limit_permits", "Permits in an interval, as in force now: of each client, if the limit is per_client.", "limit")
	interval  = desc("limit_interval_seconds", "The interval of the limit, as in force now. Of a limit with a key: the shortest interval among the 10 limiters with the longest lines.", "limit")
	used      = desc("permits_used", "Permits of past grants that still count.", "limit")
	reserved  = desc("permits_reserved", "Permits that are reserved, for a time that is yet to come.", "limit")
	available = desc("permits_available", "Permits left: what could be taken at once.", "limit")
	paused    = desc("paused_seconds", "How long the limit stays paused; 0 if it is not. Of a limit with a key, the shortest pause among the 10 limiters with the longest lines.", "limit")

	learntAccepted = desc("adapt_accepted_permits", "How many permits the API of a limit that adapts is known to accept in an interval; 0 if nothing recent is known.", "limit")
	learntMost     = desc("adapt_most_permits", "What the API takes at most in an interval, as far as known; 0 if nothing is.", "limit")
	learntCuts     = desc("adapt_cuts", "How often the limit was cut since it began to adapt or was last set.", "limit")
	learntRefused  = desc("adapt_refused_permits", "Permits of requests that the API refused since the limit began to adapt or was last set.", "limit")

	parkedJobs     = desc("parked_jobs", "Jobs of the fleet in line for the limit, outside of slots; of a limit with a key, for all its limiters.", "limit")
	parkedLimiters = desc("parked_limiters", "Limiters of the limit that jobs are in line for.", "limit")
	tenants        = desc("waiting_tenants", "Tenants that have jobs in line for the limit, which they share; only of limits with share and without a key.", "limit")
	oldestWaiting  = desc("oldest_waiting_seconds", "How long the oldest job in line for the limit has waited; 0 if there is none. Of a limit with a key, of all its limiters.", "limit")
	queueJobs      = desc("queue_jobs", "Jobs in a queue by state. Unlike asynq, it tells jobs that are parked for a limit or a slot (parked) from others that asynq counts as retries: those that failed, wait until something is fixed, or were refused by their API (retry).", "pool", "queue", "state")
	queuePaused    = desc("queue_paused", "1 if the queue is paused, else 0: no worker takes jobs from it.", "pool", "queue")
	slots          = desc("pool_slots", "Slots of the pool in this worker.", "pool")
)

// all are the metrics above.
var all = []*prometheus.Desc{
	granted, returned, denials, parked, wouldWait, pauses, slotsHeld, slotsRunning, slotsParked, slotsLost, slotsOutlived, attempts, waits, jobWaits, handlers, waiters, stalePermits, latePermits, redisCalls, redisErrors, redisUp,
	permits, interval, used, reserved, available, paused, learntAccepted, learntMost, learntCuts, learntRefused, parkedJobs, parkedLimiters, oldestWaiting, queueJobs, queuePaused, slots, tenants,
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("jobthrottle_"+name, help, labels, nil)
}
