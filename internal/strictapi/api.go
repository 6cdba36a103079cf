// Package strictapi is a third-party API that takes its limit literally: for every request it
// counts the whole interval before it, and refuses what is too much. The demo shows it, and the
// tests measure with it.
package strictapi

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// API allows so many requests in any interval, wherever the interval begins. Refused requests
// count like others. So Refused is zero exactly when Peak never rose above the limit. It is
// safe for concurrent use.
type API struct {
	limit    int
	interval time.Duration
	started  time.Time

	mu      sync.Mutex
	all     window
	workers map[string]*window
	jobs    map[string]int
	first   time.Duration
	last    time.Duration
	total   int
	refused int
}

// New returns an API that nobody has called yet.
func New(limit int, interval time.Duration) *API {
	return &API{
		limit:    limit,
		interval: interval,
		started:  time.Now(),
		workers:  make(map[string]*window),
		jobs:     make(map[string]int),
	}
}

// ServeHTTP answers 200, or 429 with Retry-After if the request exceeds the limit. The query
// parameter job, or else the header Idempotency-Key, names the job. The header User-Agent
// identifies the worker.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	job := r.URL.Query().Get("job")
	if job == "" {
		job = r.Header.Get("Idempotency-Key")
	}
	if retryAfter := a.arrive(job, r.UserAgent()); retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(retryAfter.Seconds()))))
		http.Error(w, "too many requests", http.StatusTooManyRequests)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintln(w, `{"ok":true}`)
}

// arrive records a request and returns how long the caller should wait: zero if the request is
// allowed. It reads the clock under the lock, so that the arrivals are in order and every
// window is exact.
func (a *API) arrive(job, worker string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Since(a.started)
	if a.total == 0 {
		a.first = now
	}
	a.last = now
	a.total++
	a.jobs[job]++
	byWorker := a.workers[worker]
	if byWorker == nil {
		byWorker = new(window)
		a.workers[worker] = byWorker
	}
	byWorker.add(now, a.interval)
	if a.all.add(now, a.interval) <= a.limit {
		return 0
	}
	a.refused++
	return a.interval
}

// Report is what the API has seen so far.
type Report struct {
	Requests int
	Refused  int
	// Now is how many requests arrived in the interval that ends now.
	Now int
	// Peak is how many arrived in the busiest interval.
	Peak int
	// Spread is the time from the first to the last arrival.
	Spread time.Duration
	// Jobs counts the requests of each job.
	Jobs map[string]int
	// Workers has each worker's share, by its User-Agent.
	Workers map[string]Share
}

// Share is what one worker did.
type Share struct {
	Requests int
	Peak     int
}

// Report returns a copy that later requests do not change.
func (a *API) Report() Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	workers := make(map[string]Share, len(a.workers))
	for name, w := range a.workers {
		workers[name] = Share{Requests: w.total, Peak: w.peak}
	}
	return Report{
		Requests: a.total,
		Refused:  a.refused,
		Now:      a.all.count(time.Since(a.started), a.interval),
		Peak:     a.all.peak,
		Spread:   a.last - a.first,
		Jobs:     maps.Clone(a.jobs),
		Workers:  workers,
	}
}
