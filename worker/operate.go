package worker

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jobthrottle/jobthrottle/internal/limitname"
	"github.com/jobthrottle/jobthrottle/throttle"
)

// ErrUnknownLimit is what Limiter returns for names that the configuration does not know.
var ErrUnknownLimit = errors.New("no such limit in the configuration")

// Limiter returns the limiter of a limit of the configuration, for operators
// to change or pause, and its configured rate. Of a keyed limit the name is
// that of one limiter, "limit:value", with % and : of the value written %25 and
// %3A. A name that no limiter can have is an error; one that the configuration
// does not know is ErrUnknownLimit.
func (w *Worker) Limiter(name string) (*throttle.Limiter, throttle.Rate, error) {
	for _, l := range w.plans.Limits() {
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
		limiter, err := w.throttle.Limiter(name)
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
