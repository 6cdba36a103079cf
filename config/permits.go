package config

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/jobthrottle/jobthrottle/internal/expr"
)

// Permits is what a job costs of its limits. A file has one cost for all limits, or a mapping
// from limits to costs:
//
//	permits: payload.tokens
//	permits: { llm-tokens: payload.tokens }
//
// A cost is a number, or payload.PATH or header.NAME for a number that the job has.
type Permits struct {
	// Each is the cost of each limit that ByLimit does not name. Defaults to 1. It is 1 if the
	// file has a mapping.
	Each string `yaml:"-"`
	// ByLimit are the costs of single limits, by their names.
	ByLimit map[string]string `yaml:"-"`
}

// Of returns the cost of a limit, as the configuration has it: empty means 1.
func (p Permits) Of(limit string) string {
	if cost, ok := p.ByLimit[limit]; ok {
		return cost
	}
	return p.Each
}

// UnmarshalYAML reads one cost or a mapping.
func (p *Permits) UnmarshalYAML(decode func(any) error) error {
	*p = Permits{}
	var read any
	if err := decode(&read); err != nil {
		return err
	}
	if _, mapping := read.(map[string]any); mapping {
		return decode(&p.ByLimit)
	}
	err := decode(&p.Each)
	if wrong, ok := errors.AsType[*yaml.TypeError](err); ok {
		return &yaml.SyntaxError{Message: "invalid value: want a number, a path, or a mapping from limits to these", Token: wrong.Token}
	}
	return err
}

// permitsType is the type of the value that a node has where a Permits belongs.
func permitsType(n ast.Node) reflect.Type {
	switch n := n.(type) {
	case *ast.AnchorNode:
		return permitsType(n.Value)
	case *ast.MappingNode, *ast.MappingValueNode:
		return reflect.TypeFor[map[string]string]()
	}
	return reflect.TypeFor[string]()
}

// checkPermits refuses costs that cannot be parsed, costs of limits that the job does not have,
// and costs above what a limit ever gives.
func (c *Config) checkPermits(key string, j Job) error {
	if _, err := expr.ParseCost(j.Permits.Each); err != nil {
		return invalid(key, "%v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(j.Permits.ByLimit)) {
		own, text := key+"."+name, j.Permits.ByLimit[name]
		if !slices.Contains(j.Limits, name) {
			return invalid(own, "%q is not a limit of this job: want some of %s", name, strings.Join(j.Limits, ", "))
		}
		if c.Limits[name].IsInFlight() {
			return invalid(own, "%q is a limit in flight: a job takes one slot of it", name)
		}
		if _, err := expr.ParseCost(text); err != nil {
			return invalid(own, "%v", err)
		}
		if text == "" {
			return invalid(own, "missing: want a whole number, payload.PATH or header.NAME")
		}
	}
	for _, name := range j.Limits {
		if c.Limits[name].IsInFlight() {
			continue
		}
		path := key
		if _, own := j.Permits.ByLimit[name]; own {
			path += "." + name
		}
		cost, err := expr.ParseCost(j.Permits.Of(name))
		if err != nil {
			return invalid(path, "%v", err)
		}
		if rate, err := c.Limits[name].highest(); err == nil && cost.Fixed() > rate.Permits {
			return invalid(path, "%d permits are more than limit %q ever gives at once (%s)", cost.Fixed(), name, rate)
		}
		if a := c.Limits[name].Adapt; a != nil && cost.Fixed() > a.Min {
			return invalid(path, "%d permits are more than limit %q gives once it has adapted down to %d: raise adapt.min", cost.Fixed(), name, a.Min)
		}
	}
	return nil
}
