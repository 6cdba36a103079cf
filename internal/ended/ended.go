// Package ended says why a wait ended with its context.
package ended

import (
	"context"
	"errors"
	"fmt"
)

// By is the error for a wait that ctx has ended: ctx's own error and, if it has another, its cause. It is nil if ctx has not
// ended.
func By(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	switch {
	case err == nil || cause == nil:
		return err
	case errors.Is(cause, err):
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
