package config

import (
	"maps"
	"slices"

	"github.com/jobthrottle/jobthrottle/internal/expr"
	"github.com/jobthrottle/jobthrottle/internal/fair"
)

// WeightOf returns the weight that the configuration gives a tenant.
func (l Limit) WeightOf(tenant string) float64 {
	if w, ok := l.Weights[tenant]; ok {
		return w
	}
	if l.DefaultWeight != nil {
		return *l.DefaultWeight
	}
	return 1
}

// checkShare refuses shares that cannot work, tenants that no job can have, and invalid
// weights.
func (l Limit) checkShare(key, name string) error {
	if l.Share == "" {
		switch {
		case len(l.Weights) > 0:
			return invalid(key+".weights", "needs limits.%s.share: without it there are no tenants", name)
		case l.DefaultWeight != nil:
			return invalid(key+".default_weight", "needs limits.%s.share: without it there are no tenants", name)
		}
		return nil
	}
	if _, err := expr.ParseSelector(l.Share); err != nil {
		return invalid(key+".share", "%v", err)
	}
	switch {
	case l.Share == l.Key:
		return invalid(key+".share", "the same as the key: each of its values has the whole limit, and shares it with nobody")
	case l.Type == "per_client":
		return invalid(key+".share", "a per_client limit is not shared by the fleet: want type overall")
	}
	for _, tenant := range slices.Sorted(maps.Keys(l.Weights)) {
		of := key + ".weights." + tenant
		if err := fair.CheckTenant(tenant); err != nil {
			return invalid(of, "%v", err)
		}
		if err := fair.CheckWeight(l.Weights[tenant]); err != nil {
			return invalid(of, "%v", err)
		}
	}
	if l.DefaultWeight != nil {
		if err := fair.CheckWeight(*l.DefaultWeight); err != nil {
			return invalid(key+".default_weight", "%v", err)
		}
	}
	return nil
}
