package admin

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/history"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/internal/secrets"
)

// api is what the page asks and gets, in JSON. Times are in milliseconds.
type api struct {
	source   Source
	sampler  *sampler
	writable bool
	logger   *slog.Logger

	reading chan struct{} // full while a request reads jobs
	hide    *secrets.Hider
	fleet   *cached[[]jobview.Worker]

	otherQueues *cached[jobview.OtherQueues]
	hour        *cached[history.Past]
}

type overviewReply struct {
	Worker   string     `json:"worker"`
	At       int64      `json:"at"`
	Writable bool       `json:"writable"`
	Waiting  int64      `json:"waiting"` // requests for permits in this worker
	Limits   []limit    `json:"limits"`
	InFlight []inFlight `json:"in_flight"`
	// InAll is how many limits there are. Limits are only those that need attention.
	InAll    int                       `json:"limits_in_all"`
	Paused   int                       `json:"paused"` // limiters
	Parked   int64                     `json:"parked"` // jobs
	Troubles []trouble                 `json:"troubles"`
	Blocked  []jobview.BlockedOverview `json:"blocked"`
	Pools    []pool                    `json:"pools"`
	Unread   int64                     `json:"unread"`
}

type limit struct {
	Name       string    `json:"name"`
	Configured string    `json:"configured"`
	Type       string    `json:"type"`
	Key        string    `json:"key"`
	Jobs       []string  `json:"jobs"`
	Parked     int64     `json:"parked"`
	Lines      int64     `json:"lines"`
	Limiters   []limiter `json:"limiters"`
	Share      string    `json:"share"`
	// Tenants are some of the tenants that wait, and TenantsInAll is how many there are.
	Tenants      []jobview.TenantShare `json:"tenants"`
	TenantsInAll int64                 `json:"tenants_in_all"`
	Broken       []string              `json:"broken"` // what is wrong with limiters that cannot be shown
	Learnt       *learnt               `json:"learnt"` // null if the limit does not adapt
}

// learnt is what the API of a limit accepts, in permits; 0 means unknown.
type learnt struct {
	Accepted int64  `json:"accepted"`
	Most     int64  `json:"most"`
	Known    string `json:"known"` // these two, in words
	Min      int64  `json:"min"`
	Max      int64  `json:"max"`
	Cuts     int64  `json:"cuts"`
	Taken    int64  `json:"taken"`
	Refused  int64  `json:"refused"`
}

type limiter struct {
	Name string `json:"name"`
	// Configured is the rate of its value, where the limit has rates for some values.
	Configured string   `json:"configured"`
	Rate       string   `json:"rate"`
	Interval   int64    `json:"interval"`
	Allowed    int64    `json:"allowed"`
	Used       int64    `json:"used"`
	Reserved   int64    `json:"reserved"`
	Available  int64    `json:"available"`
	NextFree   int64    `json:"next_free"`
	Paused     int64    `json:"paused"`
	Pinned     bool     `json:"pinned"`
	Parked     int64    `json:"parked"`
	Clients    []client `json:"clients"` // for per_client limits
}

type client struct {
	ID        string `json:"id"`
	Allowed   int64  `json:"allowed"`
	Used      int64  `json:"used"`
	Reserved  int64  `json:"reserved"`
	Available int64  `json:"available"`
}

// inFlight is a limit in flight, with the values of its key that have the longest lines.
type inFlight struct {
	Name   string          `json:"name"`
	Slots  int64           `json:"slots"` // as configured
	Key    string          `json:"key"`
	Jobs   []string        `json:"jobs"`
	Parked int64           `json:"parked"`
	Lines  int64           `json:"lines"`
	Values []inFlightValue `json:"values"`
}

type inFlightValue struct {
	Name    string `json:"name"`
	Slots   int64  `json:"slots"` // 0 if no job has needed one yet, -1 if it cannot be read
	Taken   int64  `json:"taken"`
	Waiting int64  `json:"waiting"` // in workers
	Parked  int64  `json:"parked"`
	Oldest  int64  `json:"oldest"` // how long the first in workers has waited
	Pinned  bool   `json:"pinned"`
}

type pool struct {
	Name       string  `json:"name"`
	Slots      int     `json:"slots"`
	MaxWaiting int     `json:"max_waiting"`
	Queues     []queue `json:"queues"`
}

type queue struct {
	Name      string `json:"name"`
	Weight    int    `json:"weight"`
	Pending   int64  `json:"pending"`
	Active    int64  `json:"active"`
	Scheduled int64  `json:"scheduled"`
	Retry     int64  `json:"retry"`
	Parked    int64  `json:"parked"`
	Archived  int64  `json:"archived"`
	Completed int64  `json:"completed"`
	Paused    bool   `json:"paused"`
}

func (a *api) overview(w http.ResponseWriter, r *http.Request) {
	o, err := a.sampler.Overview(r.Context())
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	stats := a.source.Stats()
	reply := overviewReply{
		Worker: a.source.ID(), At: o.At.UnixMilli(), Writable: a.writable, Waiting: stats.Throttle.Waiting,
		Limits: []limit{}, InFlight: []inFlight{}, InAll: len(o.Limits), Troubles: troublesOf(o, stats.Refused), Blocked: append([]jobview.BlockedOverview{}, o.Blocked...),
		Pools: make([]pool, 0, len(o.Pools)), Unread: o.Unread,
	}
	for _, l := range o.Limits {
		reply.Parked += l.Parked
		for _, u := range l.Limiters {
			if u.Paused > 0 {
				reply.Paused++
			}
		}
	}
	for _, l := range chosen(o.Limits, r.URL.Query().Get("find")) {
		reply.Limits = append(reply.Limits, showLimit(l))
	}
	for _, l := range o.InFlight {
		reply.Parked += l.Parked
		shown := inFlight{l.Name, l.Slots, l.Key, l.Jobs, l.Parked, l.Lines, make([]inFlightValue, 0, len(l.Values))}
		for _, u := range l.Values {
			shown.Values = append(shown.Values, inFlightValue{u.Name, u.Limit, u.Taken, u.Waiting, u.Parked, ceilMS(u.Oldest), u.Pinned})
		}
		reply.InFlight = append(reply.InFlight, shown)
	}
	for _, p := range o.Pools {
		queues := make([]queue, 0, len(p.Queues))
		for _, q := range p.Queues {
			queues = append(queues, queue(q))
		}
		reply.Pools = append(reply.Pools, pool{Name: p.Name, Slots: p.Slots, MaxWaiting: p.MaxWaiting, Queues: queues})
	}
	answer(w, reply)
}

func showLimit(l jobview.LimitOverview) limit {
	shown := limit{
		Name: l.Name, Configured: l.Rate.String(), Type: l.Rate.Type.String(), Key: l.Key, Jobs: l.Jobs, Parked: l.Parked, Lines: l.Lines,
		Limiters: make([]limiter, 0, len(l.Limiters)), Share: l.Share, Tenants: append([]jobview.TenantShare{}, l.Tenants...), TenantsInAll: l.AllTenants, Broken: make([]string, 0, len(l.Broken)),
	}
	for _, err := range l.Broken {
		shown.Broken = append(shown.Broken, plain.Text(err.Error()))
	}
	for _, u := range l.Limiters {
		shown.Limiters = append(shown.Limiters, showLimiter(u))
	}
	if a := l.Learnt; a != nil {
		shown.Learnt = &learnt{Accepted: a.Accepted, Most: a.Most, Known: a.Known(), Min: a.Min, Max: a.Max, Cuts: a.Cuts, Taken: a.Taken, Refused: a.Refused}
	}
	return shown
}

func showLimiter(l jobview.LimiterOverview) limiter {
	shown := limiter{
		Name: l.Name, Configured: l.Configured.String(), Rate: l.Rate.String(), Interval: l.Rate.Interval.Milliseconds(), Allowed: allowed(l.FleetUsage),
		Used: l.Used, Reserved: l.Reserved, Available: l.Available, NextFree: ceilMS(l.NextFree), Paused: ceilMS(l.Paused),
		Pinned: l.Pinned, Parked: l.Parked, Clients: make([]client, 0, len(l.PerClient)),
	}
	for _, c := range l.PerClient {
		shown.Clients = append(shown.Clients, client{
			ID: plain.Text(c.ID), Allowed: l.Rate.Permits, Used: c.Used, Reserved: c.Reserved, Available: c.Available,
		})
	}
	slices.SortFunc(shown.Clients, func(a, b client) int { return strings.Compare(a.ID, b.ID) })
	return shown
}

// history replies with the points of each limiter that was shown lately: time, used, reserved,
// allowed, 1 if it was paused, and what its API accepts at least and at most, where that is
// known.
func (a *api) history(w http.ResponseWriter, _ *http.Request) {
	reply := map[string][][7]int64{}
	for name, points := range a.sampler.past() {
		shown := make([][7]int64, 0, len(points))
		for _, p := range points {
			paused := int64(0)
			if p.paused {
				paused = 1
			}
			shown = append(shown, [7]int64{p.at.UnixMilli(), p.used, p.reserved, p.allowed, paused, p.accepted, p.most})
		}
		reply[name] = shown
	}
	answer(w, reply)
}

// ceilMS rounds up, so that a pause that is not over does not show as none.
func ceilMS(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, v)
}

// writeJSON writes one line that is safe wherever it is shown.
func writeJSON(w http.ResponseWriter, v any) {
	if line, err := json.Marshal(v); err == nil {
		_, _ = w.Write(append(plain.JSON(line), '\n')) // a client that has gone misses nothing
	}
}

// refuse answers with an error that says why.
func refuse(w http.ResponseWriter, status int, why string) { refuseWith(w, status, why, "") }

// refuseWith also gives programs a hint, beside the text for people.
func refuseWith(w http.ResponseWriter, status int, why, hint string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	body := map[string]string{"error": plain.Text(why)}
	if hint != "" {
		body["hint"] = hint
	}
	writeJSON(w, body)
}
