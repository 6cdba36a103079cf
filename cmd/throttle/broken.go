package main

import (
	"errors"

	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
)

// broken is a limiter that cannot be read: only its name and the error are shown.
func broken(name string, err error) limiter {
	return limiter{Name: name, Error: err.Error(), Standing: new(Standing), err: err}
}

// why says what is wrong with a broken limiter, without its name.
func why(err error) string {
	if one, ok := errors.AsType[*throttle.Error](err); ok {
		return plain.Text(one.Err.Error())
	}
	return plain.Text(err.Error())
}

// isBroken reports whether an error means only that one limiter in Redis cannot be used as it
// is.
func isBroken(err error) bool {
	return errors.Is(err, throttle.ErrInvalidRate) || errors.Is(err, throttle.ErrWrongType)
}

// wrongWith says what is wrong with limiters that could not be read, by name.
func wrongWith(err error) (map[string]error, error) {
	wrong := map[string]error{}
	spoilt, ok := errors.AsType[*operate.SpoiltError](err)
	if !ok {
		return wrong, err
	}
	for _, l := range spoilt.Limiters {
		wrong[l.Limiter] = l
	}
	return wrong, nil
}
