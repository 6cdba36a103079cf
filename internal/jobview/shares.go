package jobview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jobthrottle/jobthrottle/internal/fair"
	"github.com/jobthrottle/jobthrottle/internal/line"
)

// maxTenants is how many tenants of a limiter are read from each queue: those that are called
// next.
const maxTenants = 500

// TenantShare is the share of one of the tenants that share a limiter and have tasks in line
// for it.
type TenantShare struct {
	Tenant string  `json:"tenant"`
	Weight float64 `json:"weight"`
	Share  float64 `json:"share"` // of the limit, from 0 to 1, while the tenants that wait now do
	Parked int64   `json:"parked"`
}

// WeightsFrom sets the function that gives the configured weights of tenants. It is used where
// no operator has set a weight. Without it these weights are 1.
func (i *Inspector) WeightsFrom(of func(limiter, tenant string) float64) { i.weight = of }

// SetWeight gives a tenant of a limiter another weight than the configuration does. A weight of
// 0 restores the configured one. Workers apply it when they next visit the line, also after a
// restart.
func (i *Inspector) SetWeight(ctx context.Context, limiter, tenant string, weight float64) error {
	err := fair.CheckTenant(tenant)
	if err == nil && weight != 0 {
		err = fair.CheckWeight(weight)
	}
	if err == nil {
		err = i.lines.SetWeight(ctx, limiter, tenant, weight, i.weightOf(limiter, tenant))
	}
	if err != nil {
		return fmt.Errorf("set the weight of tenant %q of limiter %q: %w", tenant, limiter, err)
	}
	return nil
}

// Weights returns the weights that operators have set.
func (i *Inspector) Weights(ctx context.Context, limiter string) (map[string]float64, error) {
	return i.lines.Weights(ctx, limiter)
}

// ForgetShares deletes the weights that operators have set, and what tenants have got.
func (i *Inspector) ForgetShares(ctx context.Context, limiter string) error {
	return i.lines.ForgetShares(ctx, limiter)
}

// Tenants returns the tenants of a limiter that have tasks in line, the largest weight first,
// and how many there are. If there are very many, it returns those that are called next.
func (i *Inspector) Tenants(ctx context.Context, limiter string) (shares []TenantShare, all int64, err error) {
	queues, err := i.Queues(ctx)
	if err != nil || len(queues) == 0 {
		return nil, 0, err
	}
	tasks, err := i.lines.SharedLengths(ctx, queues, []string{limiter})
	if err != nil {
		return nil, 0, fmt.Errorf("read the tenants of limiter %q: %w", limiter, err)
	}
	if slices.Max(tasks[0]) == 0 {
		return nil, 0, nil
	}
	of := make([]line.TenantsOf, len(queues))
	for n, queue := range queues {
		of[n] = line.TenantsOf{Queue: queue, Limiter: limiter, Most: maxTenants}
	}
	waiting, err := i.lines.Tenants(ctx, of)
	if err != nil {
		return nil, 0, fmt.Errorf("read the tenants of limiter %q: %w", limiter, err)
	}
	at := map[string]int{}
	var names []string
	for _, w := range waiting {
		all += w.All - int64(len(w.First))
		for _, t := range w.First {
			n, there := at[t.Name]
			if !there {
				n = len(shares)
				at[t.Name], shares, names = n, append(shares, TenantShare{Tenant: t.Name}), append(names, t.Name)
			}
			shares[n].Parked += t.Tasks
		}
	}
	if all += int64(len(shares)); all == 0 {
		return nil, 0, nil
	}
	weights, err := i.weights(ctx, limiter, names)
	if err != nil {
		return nil, 0, err
	}
	sum, unread := 0.0, float64(all-int64(len(shares)))
	for n := range shares {
		shares[n].Weight = weights[n]
		sum += weights[n]
	}
	sum += unread * sum / float64(len(shares)) // the others are assumed to have the average weight
	for n := range shares {
		shares[n].Share = shares[n].Weight / sum
	}
	slices.SortFunc(shares, func(a, b TenantShare) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), cmp.Compare(b.Parked, a.Parked), cmp.Compare(a.Tenant, b.Tenant))
	})
	return shares, all, nil
}

// weights returns the weights of tenants of a limiter.
func (i *Inspector) weights(ctx context.Context, limiter string, tenants []string) ([]float64, error) {
	tags, err := i.lines.Tags(ctx, nil, []string{limiter}, [][]string{tenants})
	if err != nil {
		return nil, err
	}
	weights := tags[0].Weights
	for n, tenant := range tenants {
		if weights[n] == 0 {
			weights[n] = i.weightOf(limiter, tenant)
		}
	}
	return weights, nil
}

func (i *Inspector) weightOf(limiter, tenant string) float64 {
	if i.weight == nil {
		return 1
	}
	return i.weight(limiter, tenant)
}

// tenantParts returns the lines of the tenants of one queue, as parts of a line.
func (i *Inspector) tenantParts(ctx context.Context, queue, limiter string) ([]line.Part, error) {
	waiting, err := i.lines.Tenants(ctx, []line.TenantsOf{{Queue: queue, Limiter: limiter, Most: maxTenants}})
	if err != nil {
		return nil, err
	}
	first := waiting[0].First
	names := make([]string, len(first))
	for n, t := range first {
		names[n] = t.Name
	}
	weights, err := i.weights(ctx, limiter, names)
	if err != nil {
		return nil, err
	}
	parts := make([]line.Part, len(first))
	for n, t := range first {
		parts[n] = line.Part{Queue: t.Name, Tasks: t.Tasks, Live: true, Weight: weights[n] / float64(max(t.Cost, 1)), Tag: t.Start}
	}
	return parts, nil
}

// tasks returns n tasks of a queue's part of a limiter's line, from the given position on, in
// the order in which they will be called.
func (i *Inspector) tasks(ctx context.Context, queue, limiter string, from, n int64) ([]line.InLine, error) {
	plain, err := i.lines.Tasks(ctx, queue, limiter, from, n)
	if err != nil || len(plain) > 0 {
		return plain, err
	}
	parts, err := i.tenantParts(ctx, queue, limiter)
	if err != nil || len(parts) == 0 {
		return nil, err
	}
	order := line.Order(parts, from, n)
	first, last := map[int]int64{}, map[int]int64{}
	for _, s := range order {
		if _, there := first[s.Part]; !there {
			first[s.Part] = s.At
		}
		last[s.Part] = s.At
	}
	found := map[int][]line.InLine{}
	for p := range first {
		if found[p], err = i.lines.Tasks(ctx, queue, line.OfTenant(limiter, parts[p].Queue), first[p], last[p]-first[p]+1); err != nil {
			return nil, err
		}
	}
	var tasks []line.InLine
	for _, s := range order {
		if at := s.At - first[s.Part]; at < int64(len(found[s.Part])) {
			tasks = append(tasks, found[s.Part][at])
		}
	}
	return tasks, nil
}

// positionAmong is how many tasks of its queue come before one that is in the line of a tenant,
// at a position there.
func (i *Inspector) positionAmong(ctx context.Context, queue, limiter, tenant string, position int64) (int64, error) {
	parts, err := i.tenantParts(ctx, queue, limiter)
	if err != nil {
		return 0, err
	}
	part := slices.IndexFunc(parts, func(p line.Part) bool { return p.Queue == tenant })
	if part < 0 {
		return position, nil
	}
	return line.Before(parts, line.Position{Part: part, At: position}), nil
}

// explainTenant tells whose task it is, and describes that tenant's share.
func (i *Inspector) explainTenant(ctx context.Context, e *Explanation, limiter, tenant string, position int64) error {
	shares, all, err := i.Tenants(ctx, limiter)
	if err != nil {
		return err
	}
	t := &HoldingTenant{Name: tenant, Tenants: all}
	if weights, werr := i.weights(ctx, limiter, []string{tenant}); werr == nil {
		t.Weight = weights[0]
	} else {
		err = errors.Join(err, werr)
	}
	if n := slices.IndexFunc(shares, func(s TenantShare) bool { return s.Tenant == tenant }); n >= 0 {
		t.Share = shares[n].Share
	} else if all > 0 {
		t.Share = 1 / float64(all)
	}
	if !e.Called {
		t.Ahead = &position
	}
	e.Tenant = t
	return err
}

// HoldingTenant is the tenant of a task that is in line for a limiter that tenants share.
type HoldingTenant struct {
	Name    string  `json:"name"`
	Weight  float64 `json:"weight"`
	Share   float64 `json:"share"`           // of the limit, from 0 to 1, while the tenants that wait now do
	Tenants int64   `json:"tenants"`         // that have tasks in line, this one included
	Ahead   *int64  `json:"ahead,omitempty"` // tasks of the same tenant that come first in its queue
}

func (e *Explanation) sayTenant(say sayer) {
	t := e.Tenant
	if t == nil {
		return
	}
	if t.Ahead != nil {
		say("It is one of tenant %q (weight %g): %s of that tenant before it.", t.Name, t.Weight, jobs(*t.Ahead))
	} else {
		say("It is one of tenant %q (weight %g).", t.Name, t.Weight)
	}
	if t.Tenants > 1 {
		say("%d tenants have jobs in line; this one gets about %.3g %% of the limit while they do.", t.Tenants, 100*t.Share)
	} else {
		say("No other tenant has jobs in line: this one gets all of the limit.")
	}
}
