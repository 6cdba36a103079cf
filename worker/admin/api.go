package admin

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/plain"
)

// api is what the page asks and says, in JSON. Times are milliseconds.
type api struct {
	source   Source
	sampler  *sampler
	writable bool
	logger   *slog.Logger

	explaining chan struct{} // holds one while a job is explained
}

type overviewReply struct {
	Worker   string  `json:"worker"`
	At       int64   `json:"at"`
	Writable bool    `json:"writable"`
	Waiting  int64   `json:"waiting"` // requests for permits in this worker
	Limits   []limit `json:"limits"`
	Pools    []pool  `json:"pools"`
	Unread   int64   `json:"unread"`
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
	Broken     []string  `json:"broken"` // what is wrong with limiters that cannot be shown
}

type limiter struct {
	Name string `json:"name"`
	// Configured is that of its value, where the limit has rates for some.
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
	Clients    []client `json:"clients"` // of limits of each client
}

type client struct {
	ID        string `json:"id"`
	Allowed   int64  `json:"allowed"`
	Used      int64  `json:"used"`
	Reserved  int64  `json:"reserved"`
	Available int64  `json:"available"`
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
	reply := overviewReply{
		Worker: a.source.ID(), At: o.At.UnixMilli(), Writable: a.writable, Waiting: a.source.Stats().Throttle.Waiting,
		Limits: make([]limit, 0, len(o.Limits)), Pools: make([]pool, 0, len(o.Pools)), Unread: o.Unread,
	}
	for _, l := range o.Limits {
		reply.Limits = append(reply.Limits, showLimit(l))
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
		Limiters: make([]limiter, 0, len(l.Limiters)), Broken: make([]string, 0, len(l.Broken)),
	}
	for _, err := range l.Broken {
		shown.Broken = append(shown.Broken, plain.Text(err.Error()))
	}
	for _, u := range l.Limiters {
		shown.Limiters = append(shown.Limiters, showLimiter(u))
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

// history replies with the points of each limiter that was shown of late: time,
// used, reserved, allowed, and 1 if it was paused.
func (a *api) history(w http.ResponseWriter, _ *http.Request) {
	reply := map[string][][5]int64{}
	for name, points := range a.sampler.past() {
		shown := make([][5]int64, 0, len(points))
		for _, p := range points {
			paused := int64(0)
			if p.paused {
				paused = 1
			}
			shown = append(shown, [5]int64{p.at.UnixMilli(), p.used, p.reserved, p.allowed, paused})
		}
		reply[name] = shown
	}
	answer(w, reply)
}

// ceilMS keeps a pause that is not over from showing as none.
func ceilMS(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	writeJSON(w, v)
}

// writeJSON writes one line that is plain wherever it is shown.
func writeJSON(w http.ResponseWriter, v any) {
	if line, err := json.Marshal(v); err == nil {
		_, _ = w.Write(append(plain.JSON(line), '\n')) // who has gone misses nothing
	}
}

// refuse says why not.
func refuse(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	writeJSON(w, map[string]string{"error": plain.Text(why)})
}
