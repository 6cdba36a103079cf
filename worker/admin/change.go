package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/throttle"
)

const (
	// maxBody is far more than any change needs.
	maxBody = 4 << 10
	// changeTimeout is how long a change waits for Redis at most.
	changeTimeout = 5 * time.Second
)

// setRate handles {"rate": "50/1s", "pin": true}. What the limit has used stays used. A limit
// that is not pinned gets the rate of the configuration back when a worker starts. Without
// "pin", the limit stays pinned or unpinned. A rate below the cost of waiting jobs is refused,
// with their number, unless "yes" is true.
func (a *api) setRate(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Rate string `json:"rate"`
		Pin  *bool  `json:"pin"`
		Yes  bool   `json:"yes"`
	}
	a.change(w, r, &body, func(ctx context.Context, l *throttle.Limiter, configured throttle.Rate) error {
		want, err := throttle.ParseRate(body.Rate)
		if err != nil {
			return &inputError{err}
		}
		rate, err := l.Config(ctx)
		gives := rate.Permits
		switch {
		case errors.Is(err, throttle.ErrInvalidRate), errors.Is(err, throttle.ErrWrongType): // somebody has spoilt it: its rate is unknown
			rate = configured
		case err != nil:
			return err
		}
		if rate.Interval != want.Interval {
			rate.Guard = configured.Guard // the guard belongs to the interval
		}
		rate.Permits, rate.Interval = want.Permits, want.Interval
		if err := rate.Validate(); err != nil {
			return &inputError{err}
		}
		if rate.Permits < gives && !body.Yes {
			if err := a.strands(ctx, l.Name(), gives, rate.Permits, body.Pin); err != nil {
				return err
			}
		}
		fleet := a.source.Fleet()
		// The pin comes before the rate, so that a worker that starts cannot overwrite it, and
		// a replica that is waited for has both.
		if body.Pin != nil && *body.Pin {
			if err := fleet.Pin(ctx, l.Name()); err != nil {
				return err
			}
		}
		found, err := l.UpdateRate(ctx, rate)
		switch {
		case err != nil:
			return err
		case !found: // deleted just now
			return throttle.ErrNotInitialized
		case body.Pin != nil && !*body.Pin:
			return fleet.Unpin(ctx, l.Name())
		}
		return nil
	})
}

// strands refuses a rate below the cost of waiting jobs that could run now: they would wait
// until somebody raises it. The jobs of a limit that adapts raise it themselves, unless it is
// pinned.
func (a *api) strands(ctx context.Context, limiter string, gives, to int64, pin *bool) error {
	usage, err := a.source.Fleet().Inspect(ctx, limiter)
	if err != nil {
		return err
	}
	learnt, err := a.source.Fleet().LearntOf(ctx, limiter)
	if err != nil {
		return err
	}
	pinned := len(usage) == 1 && usage[0].Pinned
	if pin != nil {
		pinned = *pin
	}
	if _, adapts := learnt[limiter]; adapts && !pinned {
		return nil
	}
	looking, cancel := context.WithTimeout(ctx, changeTimeout/2) // the change needs time, too
	defer cancel()
	n, all, err := a.source.Inspector().Stranded(looking, limiter, gives, to)
	switch {
	case err != nil: // this must not keep anybody from lowering a limit
		return &unconfirmedError{fmt.Sprintf("whether jobs that wait cost more than that is not known (%v)", err)}
	case n == 0:
		return nil
	}
	return &unconfirmedError{jobview.WouldWait(n, all)}
}

// pause handles {"for": "30s"}.
func (a *api) pause(w http.ResponseWriter, r *http.Request) {
	var body struct {
		For string `json:"for"`
	}
	a.change(w, r, &body, func(ctx context.Context, l *throttle.Limiter, _ throttle.Rate) error {
		d, err := time.ParseDuration(body.For)
		if err != nil || d <= 0 {
			return &inputError{fmt.Errorf("invalid duration %.40q: want one such as 30s or 5m", body.For)}
		}
		return l.Pause(ctx, d)
	})
}

// resume handles {}.
func (a *api) resume(w http.ResponseWriter, r *http.Request) {
	a.change(w, r, &struct{}{}, func(ctx context.Context, l *throttle.Limiter, _ throttle.Rate) error {
		return l.Resume(ctx)
	})
}

// inputError is a mistake in the request.
type inputError struct{ err error }

func (e *inputError) Error() string { return e.err.Error() }

// unconfirmedError says what a change would do that the request did not confirm.
type unconfirmedError struct{ does string }

func (e *unconfirmedError) Error() string { return e.does }

// change reads the body, changes the limiter of the path, and replies with the result.
func (a *api) change(w http.ResponseWriter, r *http.Request, body any, do func(context.Context, *throttle.Limiter, throttle.Rate) error) {
	l, configured, err := a.source.Limiter(r.PathValue("name"))
	switch {
	case errors.Is(err, jobview.ErrUnknownLimit):
		refuse(w, http.StatusNotFound, err.Error())
		return
	case err != nil:
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if err := decode(http.MaxBytesReader(w, r.Body, maxBody), body); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Sprintf("the body is not as expected: %v", err))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), changeTimeout)
	defer cancel()
	err = do(ctx, l, configured)
	if ctx.Err() == nil { // otherwise Redis does not answer, and what is shown is not read again at once
		a.sampler.forget()
	}
	if _, ok := errors.AsType[*inputError](err); ok {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	if _, ok := errors.AsType[*unconfirmedError](err); ok {
		refuseWith(w, http.StatusConflict, err.Error(), `with "yes": true the change is made all the same`)
		return
	}
	switch {
	case errors.Is(err, throttle.ErrNotInitialized):
		refuse(w, http.StatusNotFound, fmt.Sprintf("limiter %q is not in Redis: it appears with the first job that needs it", l.Name()))
	case err != nil:
		refuse(w, http.StatusServiceUnavailable, err.Error())
	default:
		a.logger.Info("limit changed by an operator", "limiter", l.Name(), "path", r.URL.Path,
			"change", asJSON(body), "from", r.RemoteAddr)
		answer(w, map[string]string{"limiter": l.Name()})
	}
}

// asJSON makes any logger write the body of a change as JSON.
func asJSON(body any) json.RawMessage {
	text, err := json.Marshal(body)
	if err != nil {
		return json.RawMessage("null")
	}
	return text
}

// decode reads one JSON value. It allows no fields that v does not have.
func decode(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}

// unknownPath answers for paths below /api/ that nothing else matches.
func unknownPath(w http.ResponseWriter, _ *http.Request) {
	refuse(w, http.StatusBadRequest, "no such path: a limit's name is one segment, percent-encoded, as in POST /api/limits/NAME/pause")
}
