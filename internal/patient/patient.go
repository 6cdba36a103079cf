// Package patient asks a Redis whether it answers.
package patient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// patience is how long a Redis that does not answer is asked at most.
const patience = 5 * time.Second

// Ask calls ask, whose context ends after 5 s. If ctx ends before, Ask returns its error at once,
// and ask goes on until its client is closed: go-redis heeds only the deadline of a context while
// it waits for a reply.
func Ask(ctx context.Context, ask func(context.Context) error) error {
	bounded, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer := make(chan error, 1)
	go func() { answer <- ask(bounded) }()
	select {
	case err := <-answer:
		if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() && bounded.Err() != nil {
			return fmt.Errorf("no answer within %v: %w", patience, err)
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}
