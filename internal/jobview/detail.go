package jobview

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/secrets"
)

// Detail is a job with its contents for a person, without its secrets.
type Detail struct {
	ID       string            `json:"id"`
	Queue    string            `json:"queue"`
	Type     string            `json:"type"`
	State    string            `json:"state"` // as in an Explanation
	Payload  string            `json:"payload"`
	Headers  map[string]string `json:"headers,omitempty"`
	Result   string            `json:"result,omitempty"`
	Error    string            `json:"last_error,omitempty"`
	Retried  int               `json:"retried"`
	MaxRetry int               `json:"max_retry"`
	Timeout  string            `json:"timeout,omitempty"`
	Deadline time.Time         `json:"deadline,omitzero"`
	Past     []Happened        `json:"past,omitempty"`
	Why      []string          `json:"why"` // the text of an Explanation
}

// Happened is what Redis still knows about a job's past, or something to come.
type Happened struct {
	At   time.Time `json:"at"`
	What string    `json:"what"`
}

// shownOfPayload is how much of a payload a Detail has at most.
const shownOfPayload = 32 << 10

// Detail finds a job and describes its contents. It has the errors of Explain.
func (i *Inspector) Detail(ctx context.Context, id, queue string, hide *secrets.Hider) (*Detail, error) {
	e, err := i.Explain(ctx, id, queue)
	if err != nil {
		return nil, err
	}
	info, err := i.asynqWithin(ctx).GetTaskInfo(e.Queue, e.ID)
	if err != nil {
		return nil, fmt.Errorf("read task %q of queue %q: %w", e.ID, e.Queue, err)
	}
	d := &Detail{
		ID: e.ID, Queue: e.Queue, Type: e.Type, State: e.State, Retried: e.Retried, MaxRetry: e.MaxRetry,
		Payload: hide.Payload(info.Payload, shownOfPayload), Result: hide.Payload(info.Result, shownOfPayload),
		Headers: hide.Map(info.Headers), Error: hide.Text(info.LastErr), Deadline: info.Deadline,
	}
	if d.State == asynq.TaskStateRetry.String() && (e.Blocked != "" || e.PutOff) {
		d.State = StateParked // it waits, and has not failed
	}
	if info.Timeout > 0 {
		d.Timeout = info.Timeout.String()
	}
	for _, line := range e.Text() {
		d.Why = append(d.Why, hide.Text(line))
	}
	d.Past = pastOf(e, info)
	return d, nil
}

// pastOf lists what happened to a task, in order.
func pastOf(e *Explanation, info *asynq.TaskInfo) []Happened {
	var past []Happened
	add := func(at time.Time, what string) {
		if !at.IsZero() && at.Unix() > 0 {
			past = append(past, Happened{at, what})
		}
	}
	if e.Limiter != nil {
		add(e.Since, "came to the line of "+e.Limiter.Name)
	}
	failed := "failed"
	switch {
	case e.PutOff:
		failed = "was put off: no failure"
	case info.Retried > 0:
		failed = fmt.Sprintf("failed, after %d of %d retries", info.Retried, e.MaxRetry)
	}
	if info.LastErr != "" {
		add(info.LastFailedAt, failed)
	}
	if e.State == asynq.TaskStateActive.String() {
		add(e.Since, "started in "+e.Worker)
	}
	add(info.CompletedAt, "done")
	if !e.ComesBack.IsZero() && e.ComesBack.After(e.At) {
		what := "is tried again"
		if e.Limiter != nil {
			what = "its turn comes, about then"
		}
		add(e.ComesBack, what)
	}
	return past
}

// PauseQueue keeps workers from taking jobs of a queue until it is unpaused. Running jobs go
// on. It changes nothing if the queue is already paused.
func (i *Inspector) PauseQueue(ctx context.Context, queue string, paused bool) error {
	queues, err := i.Queues(ctx)
	if err != nil {
		return err
	}
	of := i.asynqWithin(ctx)
	for _, known := range queues {
		if known != queue {
			continue
		}
		info, err := of.GetQueueInfo(queue)
		switch {
		case err != nil:
			return fmt.Errorf("read queue %q: %w", queue, err)
		case info.Paused == paused:
			return nil
		case paused:
			return of.PauseQueue(queue)
		}
		return of.UnpauseQueue(queue)
	}
	return fmt.Errorf("queue %q: %w", queue, errors.Join(asynq.ErrQueueNotFound))
}
