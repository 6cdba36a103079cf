package hiddenapi

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// Rule is one of an API's limits.
type Rule struct {
	Name    string
	Limit   *Limit
	Applies func(*http.Request) bool  // nil: to all requests
	Cost    func(*http.Request) int64 // nil: 1
}

func (r Rule) cost(req *http.Request) int64 {
	if r.Cost == nil {
		return 1
	}
	return r.Cost(req)
}

// State is the result of a rule for a request to which it applies.
type State struct {
	Rule  Rule
	Left  int64
	Reset time.Duration // until the whole limit is available again
	Wait  time.Duration // until the request would fit; zero if it did
}

// Manners are what an API says in its responses. A nil function says nothing.
type Manners struct {
	// Headers adds headers about the limits to every response.
	Headers func(h http.Header, now time.Time, states []State)
	// Refuse answers a request that a rule refuses. Nil: only the status 429.
	Refuse func(w http.ResponseWriter, by State)
}

// API is a stand-in. It is safe for concurrent use.
type API struct {
	manners Manners
	started time.Time

	mu      sync.Mutex
	rules   []Rule
	failing int // the status with which it fails
	report  Report
}

// Report is what an API has seen.
type Report struct{ Accepted, Refused, Failed int }

// New returns an API with these limits. Refused requests do not count against any limit.
func New(m Manners, rules ...Rule) *API {
	return &API{manners: m, rules: rules, started: time.Now()}
}

// NewHidden returns an API with one limit, about which it says nothing.
func NewHidden(l *Limit) *API { return New(Manners{}, Rule{Name: "hidden", Limit: l}) }

// SetQuota changes the limit of that name.
func (a *API) SetQuota(name string, quota int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.rules {
		if r.Name == name {
			r.Limit.SetQuota(quota)
		}
	}
}

// Fail makes the API answer every request with this status; 0 ends that.
func (a *API) Fail(status int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failing = status
}

// Report returns what the API has seen so far.
func (a *API) Report() Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.report
}

// ServeHTTP answers 200. If the request exceeds a limit, it answers as the manners of the API
// say.
func (a *API) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	states, by, failing := a.arrive(req)
	if a.manners.Headers != nil {
		a.manners.Headers(w.Header(), time.Now(), states)
	}
	switch {
	case failing != 0:
		http.Error(w, http.StatusText(failing), failing)
	case by == nil:
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"ok":true}`)
	case a.manners.Refuse == nil:
		http.Error(w, "too many requests", http.StatusTooManyRequests)
	default:
		a.manners.Refuse(w, *by)
	}
}

// arrive counts a request against all rules, or against none. It reads the clock under the
// lock, so that requests are in order.
func (a *API) arrive(req *http.Request) (states []State, by *State, failing int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failing != 0 {
		a.report.Failed++
		return nil, nil, a.failing
	}
	now := time.Since(a.started)
	for _, r := range a.rules {
		if r.Applies != nil && !r.Applies(req) {
			continue
		}
		states = append(states, State{Rule: r, Wait: r.Limit.Wait(now, r.cost(req))})
	}
	for i := range states {
		if states[i].Wait > 0 && by == nil {
			by = &states[i]
		}
	}
	if by == nil {
		a.report.Accepted++
	} else {
		a.report.Refused++
	}
	for i := range states {
		s := &states[i]
		if by == nil {
			s.Rule.Limit.Take(now, s.Rule.cost(req))
		}
		s.Left, s.Reset = s.Rule.Limit.Left(now)
	}
	return states, by, 0
}

// IETF are the manners of draft-ietf-httpapi-ratelimit-headers-11, with Retry-After.
func IETF() Manners {
	return Manners{
		Headers: func(h http.Header, _ time.Time, states []State) {
			for _, s := range states {
				h.Add("RateLimit-Policy", fmt.Sprintf("%q;q=%d;w=%d", s.Rule.Name, s.Rule.Limit.quota, seconds(s.Rule.Limit.interval)))
				h.Add("RateLimit", fmt.Sprintf("%q;r=%d;t=%d", s.Rule.Name, s.Left, seconds(s.Reset)))
			}
		},
		Refuse: func(w http.ResponseWriter, by State) {
			w.Header().Set("Retry-After", strconv.Itoa(seconds(by.Reset)))
			http.Error(w, "too many requests", http.StatusTooManyRequests)
		},
	}
}

// seconds is d in whole seconds, rounded up.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }

// Server serves an API on a loopback port.
type Server struct {
	*API
	listener net.Listener
	http     http.Server
	served   chan error
}

// Start serves a on a free loopback port. The caller closes it.
func Start(a *API) (*Server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("hidden API: %w", err)
	}
	s := &Server{API: a, listener: listener, http: http.Server{Handler: a, ReadHeaderTimeout: time.Minute}, served: make(chan error, 1)}
	go func() { s.served <- s.http.Serve(listener) }()
	return s, nil
}

// URL is the server's address.
func (s *Server) URL() string { return "http://" + s.listener.Addr().String() }

// Close ends all connections and waits until the server has ended.
func (s *Server) Close() error {
	err := s.http.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
