package jobview

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/hibiken/asynq"
)

// AmbiguousTaskError says that several queues have a task with that id.
type AmbiguousTaskError struct {
	ID     string
	Queues []string
}

func (e *AmbiguousTaskError) Error() string {
	return fmt.Sprintf("task %q is in several queues (%s): name one", e.ID, strings.Join(e.Queues, ", "))
}

// find returns the one task with that id, or the copy as which it goes on.
func (i *Inspector) find(ctx context.Context, id, queue string) (*asynq.TaskInfo, error) {
	queues := []string{queue}
	if queue == "" {
		var err error
		if queues, err = i.Queues(ctx); err != nil {
			return nil, err
		}
	}
	of := i.asynqWithin(ctx)
	for _, id := range []string{id, id + CopySuffix} {
		var found []*asynq.TaskInfo
		var in []string
		for _, q := range queues {
			info, err := of.GetTaskInfo(q, id)
			switch {
			case err == nil:
				found, in = append(found, info), append(in, q)
			case errors.Is(err, asynq.ErrQueueNotFound) && queue != "":
				return nil, fmt.Errorf("queue %q: %w", queue, asynq.ErrQueueNotFound)
			case !errors.Is(err, asynq.ErrTaskNotFound) && !errors.Is(err, asynq.ErrQueueNotFound):
				return nil, fmt.Errorf("look for task %q in queue %q: %w", id, q, err)
			}
		}
		switch {
		case len(found) > 1:
			return nil, &AmbiguousTaskError{ID: id, Queues: in}
		case len(found) == 1:
			return found[0], nil
		}
	}
	return nil, fmt.Errorf("task %q: %w", id, asynq.ErrTaskNotFound)
}
