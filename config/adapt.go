package config

import (
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/httplimit"
)

// Adapt is the range within which a limit may find its rate, in permits per interval. The limit
// starts at Rate, which lies in the range, like each of Rates.
type Adapt struct {
	// Min is the least number of permits per interval: at least 1, and at most that of Rate. The
	// fixed cost of a job is at most Min.
	Min int64 `yaml:"min"`
	// Max is the number of permits per interval that the limit never exceeds, whatever the API
	// says: at least that of Rate, and at most 4,294,967,295.
	Max int64 `yaml:"max"`
}

// ThrottleAdapt returns how the limit adapts, for package throttle. It is the zero value if the
// limit does not adapt.
func (l Limit) ThrottleAdapt() throttle.Adapt {
	if l.Adapt == nil {
		return throttle.Adapt{}
	}
	return throttle.Adapt{Min: l.Adapt.Min, Max: l.Adapt.Max}
}

// checkAdapt refuses bounds that no limiter can have, and bounds that exclude the rate from
// which it starts.
func (l Limit) checkAdapt(key string) error {
	if l.Preset != "" {
		if _, err := httplimit.FindPreset(l.Preset); err != nil {
			return invalid(key+".preset", "%v", err)
		}
	}
	a := l.Adapt
	if a == nil {
		return nil
	}
	rate, err := l.ThrottleRate()
	switch {
	case err != nil:
		return err
	case l.DryRun:
		return invalid(key+".adapt", "does not go with dry_run: a limit that holds nobody back learns nothing")
	case rate.Type == throttle.PerClient:
		return invalid(key+".adapt", "a per_client limit cannot adapt: the API sees all workers together; make it overall")
	case a.Min < 1 || a.Min > rate.Permits:
		return invalid(key+".adapt.min", "invalid number %d: want 1 to the %d permits of the rate", a.Min, rate.Permits)
	case a.Max == 0:
		return invalid(key+".adapt.max", "invalid number 0, or missing: want the %d permits of the rate to %d", rate.Permits, int64(throttle.MaxPermits))
	case a.Max < rate.Permits || a.Max > throttle.MaxPermits:
		return invalid(key+".adapt.max", "invalid number %d: want the %d permits of the rate to %d", a.Max, rate.Permits, int64(throttle.MaxPermits))
	}
	for value := range l.Rates {
		rate, err := l.of(value).ThrottleRate()
		if err == nil && (rate.Permits < a.Min || rate.Permits > a.Max) {
			return invalid(key+".rates."+value, "%s is not between adapt's min and max", rate)
		}
	}
	return nil
}
