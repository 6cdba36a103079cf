package jobview

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"

	"github.com/jobthrottle/jobthrottle/internal/limitname"
	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/internal/plan"
)

// JobsOfValue lists jobs as Inspector.Jobs does, but only those that have this value in a key,
// whichever limit the key belongs to. If Limit of the query is set, only the key of that limit
// counts.
//
// For jobs that wait, or a query without a state, it lists jobs that wait for a limiter of the
// value. Failed and archived jobs wait for no limiter: their payloads are read and planned by
// the configuration.
func (v *View) JobsOfValue(ctx context.Context, q JobQuery, value string) (JobPage, error) {
	if q.State != Failed && q.State != Archived {
		return v.waitingForValue(ctx, q, value)
	}
	limit := q.Limit
	return v.inspector.planned(ctx, q, v.plans, func(name, key, limiter string) bool {
		if key == "" || limit != "" && name != limit {
			return false
		}
		of, err := limitname.OfValue(name, value)
		return err == nil && limiter == of
	})
}

// JobsOfLimit lists jobs as Jobs does. By the plans of a configuration, it knows the values of a limit from other limits whose
// names begin with that of the limit. Without plans, all of these may be values. Failed and archived jobs wait for no limit: those of a query with one of these states
// are the ones that have the limit by the plans of a configuration, or, if Limit is one value of a limit, that value.
func (i *Inspector) JobsOfLimit(ctx context.Context, q JobQuery, plans *plan.Jobs) (JobPage, error) {
	if q.State != Failed && q.State != Archived || q.Limit == "" {
		if plans != nil {
			q.hasValue = valuesOf(q.Limit, plans)
		}
		return i.Jobs(ctx, q)
	}
	limit := q.Limit
	return i.planned(ctx, q, plans, func(name, _, limiter string) bool { return limiter == limit || name == limit })
}

// valuesOf returns a function that reports whether a limiter may be a value of the limit: the limit has a key, as far as is
// known, and the limiter is no limit of its own.
func valuesOf(limit string, plans *plan.Jobs) func(limiter string) bool {
	keys := map[string]string{}
	for _, l := range plans.Limits() {
		keys[l.Name] = l.Key
	}
	for _, l := range plans.Slots() {
		keys[l.Name] = l.Key
	}
	key, known := keys[limit]
	return func(limiter string) bool {
		_, own := keys[limiter]
		return !own && (key != "" || !known)
	}
}

// JobsOfLimit lists jobs as Inspector.JobsOfLimit does, by the configuration.
func (v *View) JobsOfLimit(ctx context.Context, q JobQuery) (JobPage, error) {
	return v.inspector.JobsOfLimit(ctx, q, v.plans)
}

// planned lists jobs that have, by their payloads and the plans of a configuration, a limit that is wanted: by its name, its
// key and the limiter that the job has of it.
func (i *Inspector) planned(ctx context.Context, q JobQuery, plans *plan.Jobs, wanted func(name, key, limiter string) bool) (JobPage, error) {
	q.Limit = ""
	q.of = func(queue string, m line.Message) bool {
		// A job that cannot run has the draws that are known.
		p, _ := plans.Plan(plan.Task{Type: m.Type, Queue: queue, Payload: m.Payload, Headers: m.Headers})
		return slices.ContainsFunc(slices.Concat(p.Draws, p.Dry), func(d plan.Draw) bool { return wanted(d.Limit.Name, d.Limit.Key, d.Limiter) }) ||
			slices.ContainsFunc(slices.Concat(p.Slots, p.DrySlots), func(s plan.Slot) bool { return wanted(s.Limit.Name, s.Limit.Key, s.Limiter) })
	}
	return i.Jobs(ctx, q)
}

// waitingForValue lists jobs that wait for limiters of a value, limit by limit.
func (v *View) waitingForValue(ctx context.Context, q JobQuery, value string) (JobPage, error) {
	var queries []JobQuery
	add := func(name, key string, shared bool) {
		limiter, err := limitname.OfValue(name, value)
		if key == "" || q.Limit != "" && name != q.Limit || err != nil {
			return
		}
		of := q
		of.State, of.Limit, of.value = Waiting, limiter, !shared
		queries = append(queries, of)
	}
	for _, l := range v.plans.Limits() {
		add(l.Name, l.Key, l.Share != "")
	}
	for _, l := range v.plans.Slots() {
		add(l.Name, l.Key, false)
	}
	var at struct {
		N     int    `json:"n"` // of queries
		After string `json:"after"`
	}
	if q.After != "" {
		decoded, err := base64.RawURLEncoding.DecodeString(q.After)
		if err != nil || json.Unmarshal(decoded, &at) != nil || at.N < 0 {
			return JobPage{}, ErrBadCursor
		}
	}
	if at.N >= len(queries) {
		return JobPage{}, nil
	}
	of := queries[at.N]
	of.After = at.After
	page, err := v.inspector.Jobs(ctx, of)
	if err != nil {
		return page, err
	}
	if at.After = page.Next; at.After == "" {
		at.N++
	}
	page.Next = ""
	if at.N < len(queries) {
		next, _ := json.Marshal(at) // a text and a number
		page.Next = base64.RawURLEncoding.EncodeToString(next)
	}
	return page, nil
}
