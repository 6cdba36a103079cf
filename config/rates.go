package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/jobthrottle/jobthrottle/internal/limitname"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// ValueRates returns the rates of the values that [Limit.Rates] names, for package throttle.
func (l Limit) ValueRates() (map[string]throttle.Rate, error) {
	rates := make(map[string]throttle.Rate, len(l.Rates))
	for value := range l.Rates {
		rate, err := l.of(value).ThrottleRate()
		if err != nil {
			return nil, err
		}
		rates[value] = rate
	}
	return rates, nil
}

// of is the limit with the rate of one value.
func (l Limit) of(value string) Limit {
	l.Rate = l.Rates[value]
	return l
}

// highest is the rate that gives the most permits at once, of the limit's own rate and those of
// all values.
func (l Limit) highest() (throttle.Rate, error) {
	rate, err := l.ThrottleRate()
	if err != nil {
		return rate, err
	}
	values, err := l.ValueRates()
	for _, value := range slices.Sorted(maps.Keys(values)) {
		if values[value].Permits > rate.Permits {
			rate = values[value]
		}
	}
	return rate, err
}

// checkRates refuses values that no job can have, and rates that no limiter can have.
func (l Limit) checkRates(key, name string) error {
	if len(l.Rates) > 0 && l.Key == "" {
		return invalid(key, "needs limits.%s.key: without a key there are no values", name)
	}
	for _, value := range slices.Sorted(maps.Keys(l.Rates)) {
		of := key + "." + value
		if _, err := limitname.OfValue(name, value); err != nil {
			return invalid(of, "%v", err)
		}
		if l.Rates[value] == "" {
			return invalid(of, "missing: want PERMITS/INTERVAL, such as 100/1s")
		}
		if _, err := l.of(value).ThrottleRate(); err != nil {
			hint := ""
			if strings.Contains(l.Rates[value], ": ") { // { org:acme: 5/1s } has the key org
				hint = "; " + quote
			}
			return invalid(of, "%s%s", bare(err), hint)
		}
	}
	return nil
}
