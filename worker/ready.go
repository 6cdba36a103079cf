package worker

import (
	"context"
	"errors"
	"fmt"
)

// Ready returns nil while the worker can take jobs, or else the reason why it cannot: it has
// not started yet, Redis does not answer, or the worker drains. It is for health checks, and
// costs one Redis call.
func (w *Worker) Ready(ctx context.Context) error {
	if w.stopping() {
		return errors.New("draining")
	}
	if err := w.rdb.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("cannot reach Redis: %w", err)
	}
	for _, p := range w.pools {
		if !p.limits.Takes() {
			return errors.New("starting")
		}
	}
	return nil
}
