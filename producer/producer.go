// Package producer puts jobs into asynq's queues for the workers of this module, and for any
// other asynq server.
//
// [Producer.Enqueue] writes one [Job]. A [Stream] writes many, in order and up to 256 per
// round trip. [ParseJob] and [Reader] make jobs from lines of JSON. The tasks are plain asynq:
// its tools show them, and its servers run them.
package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// MaxRetryHeader is the task header that has the true MaxRetry of a job that an earlier version
// enqueued. These versions stored one retry more than the job asked for. Workers still read the
// header and enforce the true number. Nothing writes it any more.
const MaxRetryHeader = "jobthrottle-max-retry"

// MaxRetry returns how many retries the job with these task headers asked for. It returns false
// if they do not have a [MaxRetryHeader]; then asynq's own number is the true one.
func MaxRetry(headers map[string]string) (int, bool) {
	n, err := strconv.Atoi(headers[MaxRetryHeader])
	if err != nil || n < 0 || n > maxRetryLimit {
		return 0, false
	}
	return n, true
}

// Producer enqueues jobs over a Redis client that its caller owns and closes. It is safe for
// concurrent use.
type Producer struct {
	client *asynq.Client // write gathers its calls into one pipeline
	whole  *asynq.Client // the same, but a refused job leaves nothing behind
	rdb    redis.UniversalClient
}

// New returns a [Producer] over rdb. It makes no Redis call.
func New(rdb redis.UniversalClient) *Producer {
	return &Producer{
		client: asynq.NewClientFromRedisClient(gatherer{rdb}),
		whole:  asynq.NewClientFromRedisClient(whole{gatherer{rdb}}),
		rdb:    rdb,
	}
}

// Enqueue writes one job. A job that already exists is refused with [asynq.ErrTaskIDConflict]
// (its ID) or [asynq.ErrDuplicateTask] (UniqueFor), for errors.Is. [AlreadyThere] is true for
// both. If the existing job failed for good, the error is also [ErrArchived]. A job that cannot
// be written as it is gets a [*JobError], before any Redis call. If the program has set a
// propagator for OpenTelemetry, the job's attempts belong to the trace of ctx.
func (p *Producer) Enqueue(ctx context.Context, job Job) (*asynq.TaskInfo, error) {
	e, err := newEntry(job.traced(ctx))
	if err != nil {
		return nil, err
	}
	entries := []entry{e}
	infos, errs := p.write(ctx, entries)
	p.tellArchived(ctx, entries, errs)
	if errs[0] != nil {
		return nil, fmt.Errorf("job %s of type %q: %w", e.id, clip(e.job.Type), errs[0])
	}
	return infos[0], nil
}

// AlreadyThere reports whether err says that the job was enqueued before, which is expected
// when input is enqueued again.
func AlreadyThere(err error) bool {
	return errors.Is(err, asynq.ErrTaskIDConflict) || errors.Is(err, asynq.ErrDuplicateTask)
}

// entry is a job that is ready for asynq. Its id is chosen only once, so that writing it again
// after a lost reply finds the first write instead of adding a second.
type entry struct {
	task *asynq.Task
	id   string
	ours bool // the id was made here, so nobody else can have written it
	job  Job
	due  time.Time // from when it may start, if it has ProcessIn
	lock string    // the key of its unique lock, once it was written or refused
}

func newEntry(job Job) (entry, error) {
	if err := job.Validate(); err != nil {
		return entry{}, err
	}
	e := entry{id: job.ID, ours: job.ID == "", job: job}
	if e.ours {
		e.id = uuid.NewString()
	}
	opts := []asynq.Option{asynq.TaskID(e.id), asynq.MaxRetry(job.maxRetry())}
	if job.Queue != "" {
		opts = append(opts, asynq.Queue(job.Queue))
	}
	if job.Timeout > 0 {
		opts = append(opts, asynq.Timeout(wholeSeconds(job.Timeout)))
	}
	if job.ProcessIn > 0 {
		e.due = atSecond(time.Now().Add(job.ProcessIn))
		opts = append(opts, asynq.ProcessAt(e.due))
	}
	if job.UniqueFor > 0 {
		opts = append(opts, asynq.Unique(wholeSeconds(job.UniqueFor)))
	}
	if r := job.retention(); r > 0 {
		opts = append(opts, asynq.Retention(wholeSeconds(r)))
	}
	e.task = asynq.NewTaskWithHeaders(job.Type, job.Payload, job.Headers, opts...)
	return e, nil
}

// enqueue writes the entry with asynq's own Enqueue.
func (e entry) enqueue(ctx context.Context, client *asynq.Client) (*asynq.TaskInfo, error) {
	info, err := client.EnqueueContext(ctx, e.task)
	if e.ours && errors.Is(err, asynq.ErrTaskIDConflict) {
		return e.info(), nil // an earlier attempt of this same write arrived, and only its reply was lost
	}
	return info, err
}

// defaultTimeout is asynq's, of tasks without one.
const defaultTimeout = 30 * time.Minute

// info describes the entry as asynq does when it has written it.
func (e entry) info() *asynq.TaskInfo {
	info := &asynq.TaskInfo{
		ID: e.id, Queue: e.job.queue(), Type: e.job.Type, Payload: e.job.Payload, Headers: e.task.Headers(), State: asynq.TaskStatePending,
		MaxRetry: e.job.maxRetry(), Timeout: cmp.Or(wholeSeconds(e.job.Timeout), defaultTimeout), Retention: wholeSeconds(e.job.retention()), NextProcessAt: time.Now(),
	}
	if e.job.ProcessIn > 0 {
		info.State, info.NextProcessAt = asynq.TaskStateScheduled, e.due
	}
	return info
}

// size is about how much memory the entry needs, in bytes.
func (e entry) size() int {
	n := len(e.job.Type) + len(e.job.Payload) + len(e.job.Queue) + len(e.id)
	for key, value := range e.job.Headers {
		n += len(key) + len(value) + 64 // what the map needs for it
	}
	return n
}

// wholeSeconds rounds up to the whole seconds that asynq stores, so that nobody gets less than
// they asked for.
func wholeSeconds(d time.Duration) time.Duration {
	if whole := d.Truncate(time.Second); whole == d {
		return whole
	}
	return d.Truncate(time.Second) + time.Second
}

// atSecond returns the whole second in which t is, or that follows: asynq stores whole seconds, and a job may start in the
// one that it stores.
func atSecond(t time.Time) time.Time {
	if whole := t.Truncate(time.Second); whole.Before(t) {
		return whole.Add(time.Second)
	}
	return t
}

// clip shortens what a user wrote, so that an error fits into one line.
func clip(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
