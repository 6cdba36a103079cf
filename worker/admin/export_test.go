package admin

import "net/http"

// What tests with a worker need, which are outside of this package: worker imports it.
const (
	GuessEvery     = guessEvery
	MaxGuessing    = maxGuessing
	MaxConnections = maxConnections
	MaxOfClient    = maxOfClient
	ExplainTimeout = explainTimeout
)

// Registry is registry.
var Registry = registry

// What the page gets.
type (
	OverviewReply = overviewReply
	Limit         = limit
)

// NewSampler is newSampler.
var NewSampler = newSampler

// Allowed is allowed.
var Allowed = allowed

// Past is past.
func (s *sampler) Past() map[string][]point { return s.past() }

// Forget is forget.
func (s *sampler) Forget() { s.forget() }

// HTTP is the server beneath.
func (s *Server) HTTP() *http.Server { return &s.http }
