package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/fair"
	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/plain"
)

// tenantWeight is one value of --weight.
type tenantWeight struct {
	Limiter string  `json:"limiter"`
	Tenant  string  `json:"tenant"`
	Weight  float64 `json:"weight"` // 0: the weight of the configuration again
}

// parseWeights parses TENANT=WEIGHT. A tenant may contain an equals sign itself.
func parseWeights(texts []string) (weights []tenantWeight, err error) {
	for _, text := range texts {
		i := strings.LastIndex(text, "=")
		if i < 0 {
			return nil, usage("--weight %q: want TENANT=WEIGHT, such as acme=5, or TENANT= for the weight of the configuration", text)
		}
		w := tenantWeight{Tenant: text[:i]}
		if err := fair.CheckTenant(w.Tenant); err != nil {
			return nil, usage("--weight %q: %v", text, err)
		}
		if number := text[i+1:]; number != "" {
			if w.Weight, err = strconv.ParseFloat(number, 64); err == nil {
				err = fair.CheckWeight(w.Weight)
			}
			if err != nil {
				return nil, usage("--weight %q: want a number from %v to %v", text, fair.MinWeight, fair.MaxWeight)
			}
		}
		weights = append(weights, w)
	}
	return weights, nil
}

// setWeights changes the weights of tenants that share a limit.
func (s *session) setWeights(ctx context.Context, name string, texts []string) error {
	weights, err := parseWeights(texts)
	if err != nil {
		return err
	}
	t, err := s.toChange(ctx, name)
	if err != nil {
		return err
	}
	configured, known := s.configured(name)
	switch {
	case known && configured.Share == "":
		return usage("limit %q has no share in the configuration: no tenant has a weight", name)
	case t.keyed && len(t.values) == 0:
		return noValues(t.name)
	case !known && !t.keyed:
		if there, err := s.exists(ctx, t.name); err != nil {
			return err
		} else if !there {
			return s.missing(ctx, t.name)
		}
	}
	names := []string{t.name}
	if t.keyed {
		if err := s.sweep(ctx, t, "Set the weights for"); err != nil {
			return err
		}
		names = names[:0]
		for _, l := range t.values {
			names = append(names, l.Name)
		}
	}
	for n, limiter := range names {
		err := s.ours(ctx, limiter)
		for _, w := range weights {
			w.Limiter = limiter
			if err == nil {
				err = s.setWeight(ctx, w, n < shownChanges)
			}
		}
		switch {
		case err != nil && t.keyed:
			return t.partly(n, err)
		case err != nil:
			return err
		}
	}
	if t.keyed {
		fmt.Fprintf(s.stderr, "set in %s of limit %q; those that appear later have the weights of the configuration\n", valuesOf(len(names)), t.name)
	}
	return nil
}

// setWeight sets one weight, and says so if it is shown to people.
func (s *session) setWeight(ctx context.Context, w tenantWeight, shown bool) error {
	if err := s.parked.SetWeight(ctx, w.Limiter, w.Tenant, w.Weight); err != nil {
		return err
	}
	switch {
	case s.opts.json:
		return printJSON(s.stdout, w)
	case !shown:
		return nil
	}
	text := fmt.Sprintf("limit %q: tenant %q has weight %g", w.Limiter, w.Tenant, w.Weight)
	if w.Weight == 0 {
		text = fmt.Sprintf("limit %q: tenant %q has the weight of the configuration", w.Limiter, w.Tenant)
	}
	_, err := fmt.Fprintln(s.stdout, plain.Text(text))
	return err
}

// shownTenants is how many tenants of a limit are printed for people at most.
const shownTenants = 20

// readTenants adds the tenants that have jobs in line, and the weights that were set.
func (s *session) readTenants(ctx context.Context, l *limiter) (err error) {
	s.parked.WeightsFrom(s.weightOf)
	l.Tenants, l.AllTenants, err = s.parked.Tenants(ctx, l.Name)
	if err == nil && (l.AllTenants > 0 || s.limitOf(l.Name).Share != "") {
		l.Weights, err = s.parked.Weights(ctx, l.Name)
	}
	return err
}

// weightOf is the weight of a tenant in the configuration, 1 without one.
func (s *session) weightOf(limiter, tenant string) float64 {
	return s.limitOf(limiter).WeightOf(tenant)
}

// limitOf is the limit of the configuration that a limiter belongs to; zero without one.
func (s *session) limitOf(limiter string) config.Limit {
	if l, known := s.configured(limiter); known && l.Key == "" {
		return l
	}
	for i := range len(limiter) {
		if l, known := s.configured(limiter[:i]); known && limiter[i] == ':' && l.Key != "" {
			return l
		}
	}
	return config.Limit{}
}

// tenants prints who shares the limit now.
func (l limiter) tenants(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if len(l.Tenants) > 0 {
		fmt.Fprintln(w, "\nTENANT\tWEIGHT\tSHARE NOW\tPARKED")
	}
	for _, t := range l.Tenants[:min(len(l.Tenants), shownTenants)] {
		fmt.Fprintf(w, "%s\t%g\t%.3g %%\t%d\n", plain.Text(t.Tenant), t.Weight, 100*t.Share, t.Parked)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if more := l.AllTenants - int64(min(len(l.Tenants), shownTenants)); more > 0 {
		fmt.Fprintf(out, "and %d more tenants with jobs in line\n", more)
	}
	idle := 0
	for _, tenant := range sortedWeights(l.Weights) {
		if !slices.ContainsFunc(l.Tenants, func(t jobview.TenantShare) bool { return t.Tenant == tenant }) {
			if idle++; idle <= shownTenants {
				fmt.Fprintln(out, plain.Text(fmt.Sprintf("tenant %q has weight %g, set by hand, and no jobs in line", tenant, l.Weights[tenant])))
			}
		}
	}
	return nil
}

func sortedWeights(weights map[string]float64) []string {
	tenants := make([]string, 0, len(weights))
	for tenant := range weights {
		tenants = append(tenants, tenant)
	}
	slices.Sort(tenants)
	return tenants
}
