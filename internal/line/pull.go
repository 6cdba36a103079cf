package line

import (
	"context"
	"fmt"
	"strconv"
)

// Seen is a task as somebody has seen it. If it has moved since, it has another state or another
// score.
type Seen struct {
	ID    string
	State string  // asynq's name for it: pending, retry or archived
	Score float64 // in the set of that state; 0 if it is pending
}

// Again brings failed or archived tasks of a queue back to pending, behind the tasks that are
// pending, in this order, and returns for each whether it did. Tasks that are no longer where
// they were seen are left alone.
func (l *Lines) Again(ctx context.Context, queue string, tasks []Seen) ([]bool, error) {
	return l.pullAs(ctx, "again", queue, tasks)
}

// Delete deletes tasks of a queue, also from their lines, and returns for each whether it did.
// Tasks that are no longer where they were seen are left alone.
func (l *Lines) Delete(ctx context.Context, queue string, tasks []Seen) ([]bool, error) {
	return l.pullAs(ctx, "delete", queue, tasks)
}

func (l *Lines) pullAs(ctx context.Context, what, queue string, tasks []Seen) ([]bool, error) {
	args := []any{queuePrefix(queue), what}
	for _, t := range tasks {
		args = append(args, t.ID, t.State, scoreText(t.Score))
	}
	keys := []string{pendingKey(queue), retryKey(queue), Archived.key(queue)}
	pulled, err := l.pull.Run(ctx, l.rdb, keys, args...).Int64Slice()
	if err == nil && len(pulled) != len(tasks) {
		err = fmt.Errorf("pull.lua: %d values for %d tasks", len(pulled), len(tasks))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: tasks of queue %q: %w", what, queue, err)
	}
	done := make([]bool, len(tasks))
	for i, n := range pulled {
		done[i] = n == 1
	}
	return done, nil
}

// scoreText formats a score so that scripts read the same number.
func scoreText(score float64) string { return strconv.FormatFloat(score, 'f', -1, 64) }
