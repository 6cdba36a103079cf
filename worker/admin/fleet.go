package admin

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/history"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
)

type workerReply struct {
	ID      string       `json:"id"`
	Version string       `json:"version"`
	Config  string       `json:"config"`
	Host    string       `json:"host"`
	PID     int          `json:"pid"`
	Started int64        `json:"started"`
	Seen    int64        `json:"seen"`
	Pools   []workerPool `json:"pools"`
	Types   []string     `json:"types"` // null if it does not report them
	Lacks   []string     `json:"lacks"`
}

type workerPool struct {
	Name       string         `json:"name"`
	Slots      int            `json:"slots"`
	Running    int            `json:"running"`
	MaxWaiting int            `json:"max_waiting"`
	Waiting    int            `json:"waiting"`
	Queues     map[string]int `json:"queues"`
	Takes      bool           `json:"takes"`
}

// workers replies with the processes of the fleet.
func (a *api) workers(w http.ResponseWriter, r *http.Request) {
	all, err := a.fleet.get(r.Context())
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	reply := make([]workerReply, 0, len(all))
	for _, one := range all {
		shown := workerReply{
			ID: one.ID, Version: one.Version, Config: one.Config, Host: one.Host, PID: one.PID,
			Seen: one.Seen.UnixMilli(), Pools: make([]workerPool, 0, len(one.Pools)), Lacks: one.Lacks,
		}
		if !one.Started.IsZero() {
			shown.Started = one.Started.UnixMilli()
		}
		if one.TypesKnown {
			shown.Types = append([]string{}, one.Types...)
		}
		for _, p := range one.Pools {
			shown.Pools = append(shown.Pools, workerPool{p.Name, p.Slots, p.Running, p.MaxWaiting, p.Waiting, p.Queues, p.Takes})
		}
		reply = append(reply, shown)
	}
	answer(w, map[string]any{"workers": reply})
}

// otherQueue is a queue that this worker does not serve.
type otherQueue struct {
	queue
	Served bool `json:"served"` // a server takes jobs from it, or nobody knows
}

// serversLast is for how long nobody knows which servers run after Redis has refused what they write.
const serversLast = 20 * time.Second

// others replies with the queues that this worker does not serve.
func (a *api) others(w http.ResponseWriter, r *http.Request) {
	all, err := a.otherQueues.get(r.Context())
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	refused := a.source.Stats().Refused
	unknown := refused != nil && time.Since(refused.At) < serversLast // servers cannot write that they run
	reply := make([]otherQueue, 0, len(all.Queues))
	for _, q := range all.Queues {
		reply = append(reply, otherQueue{queue(q.QueueOverview), q.Served || unknown})
	}
	answer(w, map[string]any{"queues": reply, "unread": all.Unread})
}

// past replies with the last hour of the fleet. For each limit, and for all jobs under an empty
// name, it has the numbers of each span: started, failed, refused, the mean wait and the
// longest wait, in milliseconds.
func (a *api) past(w http.ResponseWriter, r *http.Request) {
	p, err := a.hour.get(r.Context())
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	limits := map[string][][5]int64{}
	for i, span := range p.Spans {
		for limit, c := range span {
			if limits[limit] == nil {
				limits[limit] = make([][5]int64, len(p.Spans))
			}
			mean := int64(0)
			if c.Started > 0 {
				mean = (c.Waited / time.Duration(c.Started)).Milliseconds()
			}
			limits[limit][i] = [5]int64{c.Started, c.Failed, c.Refused, mean, c.Longest.Milliseconds()}
		}
	}
	answer(w, map[string]any{"at": p.At.UnixMilli(), "from": p.Begins(0).UnixMilli(), "span": history.Span.Milliseconds(), "limits": limits})
}

// pauseQueue keeps workers from taking jobs of a queue; unpauseQueue ends that.
func (a *api) pauseQueue(w http.ResponseWriter, r *http.Request) { a.setPaused(w, r, true) }

func (a *api) unpauseQueue(w http.ResponseWriter, r *http.Request) { a.setPaused(w, r, false) }

func (a *api) setPaused(w http.ResponseWriter, r *http.Request, paused bool) {
	if err := decode(http.MaxBytesReader(w, r.Body, maxBody), &struct{}{}); err != nil {
		refuse(w, http.StatusBadRequest, "the body is not as expected: want {}")
		return
	}
	queue := r.PathValue("name")
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	err := a.source.Inspector().PauseQueue(ctx, queue, paused)
	if ctx.Err() == nil { // otherwise Redis does not answer, and what is shown is not read again at once
		a.sampler.forget()
		a.otherQueues.forget()
	}
	switch {
	case errors.Is(err, asynq.ErrQueueNotFound):
		refuse(w, http.StatusNotFound, "there is no such queue: it appears with the first job that is enqueued in it")
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, err.Error())
	default:
		a.logger.Info("queue changed by an operator", "queue", queue, "paused", paused, "from", r.RemoteAddr)
		answer(w, map[string]any{"queue": queue, "paused": paused})
	}
}

func newFleet(source Source) *cached[[]jobview.Worker] {
	return newCached(func(ctx context.Context) ([]jobview.Worker, error) { return source.Inspector().Workers(ctx) },
		func([]jobview.Worker) time.Duration { return 2 * time.Second })
}

func newHour(source Source) *cached[history.Past] {
	return newCached(func(ctx context.Context) (history.Past, error) { return source.Inspector().Past(ctx) },
		func(history.Past) time.Duration { return 5 * time.Second })
}

func newOtherQueues(source Source) *cached[jobview.OtherQueues] {
	return newCached(source.OtherQueues, func(jobview.OtherQueues) time.Duration { return 5 * time.Second })
}
