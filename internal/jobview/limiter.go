package jobview

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jobthrottle/jobthrottle/internal/limitname"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// ErrUnknownLimit is the error of Limiter for names that the configuration does not have.
var ErrUnknownLimit = errors.New("no such limit in the configuration")

// Limiter returns the limiter of a limit of the configuration, for operators to change or
// pause, and its configured rate. For a keyed limit the name is that of one limiter,
// "limit:value", with % and : of the value written %25 and %3A. The error is ErrUnknownLimit if
// the configuration does not have the limit, and another error if no limiter can have that
// name.
func (v *View) Limiter(name string) (*throttle.Limiter, throttle.Rate, error) {
	for _, l := range v.plans.Limits() {
		value, keyed := strings.CutPrefix(name, l.Name+":")
		switch {
		case l.Key == "" && name == l.Name:
		case l.Key != "" && keyed:
			right, err := limitname.OfValue(l.Name, limitname.Value(value))
			if err == nil && right != name {
				err = fmt.Errorf("invalid name %q: want %q, since %% and : of a value are written %%25 and %%3A", name, right)
			}
			if err != nil {
				return nil, throttle.Rate{}, err
			}
		default:
			continue
		}
		limiter, err := v.throttle.Limiter(name)
		return limiter, l.RateOf(name), err
	}
	if err := limitname.Check(name); err != nil {
		return nil, throttle.Rate{}, err
	}
	if strings.ContainsAny(name, "{}/") {
		return nil, throttle.Rate{}, fmt.Errorf("invalid name %q: want the name of a limit, without braces and slashes", name)
	}
	return nil, throttle.Rate{}, fmt.Errorf("%w: %q", ErrUnknownLimit, name)
}
