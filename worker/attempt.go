package worker

import (
	"context"
	"crypto/rand"
	_ "embed"
	"time"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/line"
	"github.com/jobthrottle/jobthrottle/producer"
)

//go:embed lua/ranout.lua
var ranOutLua string

// undecidedTries is how often an attempt asks Redis whether the task is to be archived.
const undecidedTries = 10

// exhausted reports whether the task has failed as often as it may, so that asynq has to
// archive it. asynq lets tasks that an earlier version of package producer enqueued have one
// attempt more than they asked for: see producer.MaxRetryHeader. It is true only once: whoever
// brings an archived task back wants it to run.
func (p *pool) exhausted(ctx context.Context, task *asynq.Task) (bool, error) {
	most, ours := producer.MaxRetry(task.Headers())
	retried, _ := asynq.GetRetryCount(ctx)
	if !ours || retried <= most {
		return false, nil
	}
	id, _ := asynq.GetTaskID(ctx)
	queue, _ := asynq.GetQueueName(ctx)
	// The reply may get lost. The same attempt gets the same answer again, so it goes on
	// asking: a later attempt would be told to run.
	attempt := rand.Text()
	for try := 1; ; try++ {
		first, err := p.w.ranOut.Run(ctx, p.w.rdb, []string{line.TaskKey(queue, id)}, attempt).Bool()
		if err == nil {
			return first, nil
		}
		undecided := &ThrottledError{RetryAfter: retryUndecided, Err: err}
		if try == undecidedTries {
			return false, undecided
		}
		select {
		case <-ctx.Done():
			return false, undecided
		case <-p.w.late.Done():
			return false, undecided
		case <-time.After(retryUndecided):
		}
	}
}

// lastAttempt reports whether another failure would be the task's last.
func lastAttempt(ctx context.Context, task *asynq.Task) bool {
	most, ours := producer.MaxRetry(task.Headers())
	if !ours {
		most, _ = asynq.GetMaxRetry(ctx)
	}
	retried, _ := asynq.GetRetryCount(ctx)
	return retried >= most
}
