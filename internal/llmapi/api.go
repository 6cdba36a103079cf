// Package llmapi is a stand-in for an API of a language model. It counts requests and tokens in
// sliding windows, as such APIs do. It also records what nobody knows before a call is over:
// the cost in tokens. Tests and benchmarks judge with it.
package llmapi

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// API records every call. It refuses none: Report judges them. It is safe for concurrent use.
type API struct {
	requests, tokens int64 // per interval
	interval         time.Duration
	took             time.Duration // time that each call takes
	started          time.Time

	mu    sync.Mutex
	calls map[string]*call
	order []*call // by arrival
}

// call is one request, and what its caller has said about it.
type call struct {
	at, settled      time.Duration // after the start; settled is 0 until its caller has settled
	tokens, estimate int64
}

// New returns an API that allows that many requests and tokens in any interval, and takes that
// long to answer.
func New(requests, tokens int64, interval, took time.Duration) *API {
	return &API{requests: requests, tokens: tokens, interval: interval, took: took, started: time.Now(), calls: map[string]*call{}}
}

// Request is what a call sends. A real API would not be told the cost of the call, or its
// caller's estimate.
type Request struct {
	ID       string `json:"id"`
	Estimate int64  `json:"estimate"`
	Cost     int64  `json:"cost"`
}

// Answer is what a call returns: the part of an answer that says what the call has cost.
type Answer struct {
	Usage struct {
		TotalTokens int64 `json:"total_tokens"`
	} `json:"usage"`
}

// ServeHTTP answers calls, and POST /settled?id=ID from callers that have settled.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/settled" {
		a.settled(r.URL.Query().Get("id"))
		return
	}
	var req Request
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	a.arrive(req)
	select {
	case <-time.After(a.took):
	case <-r.Context().Done():
		return
	}
	var answer Answer
	answer.Usage.TotalTokens = req.Cost
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // nothing can be said to a client that has gone
}

// arrive records a call. It reads the clock under the lock, so that calls are in order.
func (a *API) arrive(req Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := &call{at: time.Since(a.started), tokens: req.Cost, estimate: req.Estimate}
	a.calls[req.ID] = c
	a.order = append(a.order, c)
}

func (a *API) settled(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.calls[id]; c != nil {
		c.settled = time.Since(a.started)
	}
}
