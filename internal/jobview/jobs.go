package jobview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// JobState is the state of a job that somebody may have to take care of. Jobs that run, are
// scheduled for later, or are done have none of these states.
type JobState string

// The states of a Job.
const (
	Waiting  JobState = "waiting"  // for a limit, for something to be fixed, for a slot
	Failed   JobState = "failed"   // and asynq tries it again
	Archived JobState = "archived" // for good, unless somebody runs it again
)

// JobStates are all states of a Job.
var JobStates = []JobState{Waiting, Failed, Archived}

// Why a job waits, in one word. For one that cannot run until something is fixed, it is the
// BlockReason.
const (
	WhyLimit   = "limit"        // it is in line for Job.Limit
	WhyPaused  = "limit_paused" // the same, and the limit is paused
	WhyCalled  = "called"       // Job.Limit has called it: it is on its way
	WhyWorker  = "in_worker"    // a worker has it, and it waits there for a permit or a slot
	WhyRefused = "refused"      // its API told it to try later
	WhyQueue   = "queue_paused"
	WhySlot    = "slot" // it waits in its queue for a worker that takes it
)

// Job is a job that waits, failed or is archived.
type Job struct {
	ID       string    `json:"id"`
	Queue    string    `json:"queue"`
	Type     string    `json:"type"`
	State    JobState  `json:"state"`
	Why      string    `json:"why,omitempty"`   // of a job that waits: one of the words above
	Limit    string    `json:"limit,omitempty"` // the limiter that holds it
	Cost     int64     `json:"cost,omitempty"`  // permits of that limiter
	Since    time.Time `json:"since,omitzero"`  // when it first arrived in the line, or failed, or was archived; zero if unknown
	Next     time.Time `json:"next,omitzero"`   // when it is tried next: exact for failed jobs, else an estimate; zero: unknown
	Retried  int       `json:"retried"`
	MaxRetry int       `json:"max_retry"`            // as its producer asked
	Error    string    `json:"last_error,omitempty"` // the error of its last attempt, unchanged

	seen   line.Seen // where it is stored; without a State if a process has it
	line   string    // the line of its limit in which it is
	shared bool      // that line is a tenant's
}

// JobQuery says which jobs to list.
type JobQuery struct {
	State JobState // empty: all
	Limit string   // only those that wait for this limiter, or for one of the values of this limit; see also JobsOfLimit
	Queue string   // empty: all
	Type  string   // empty: all; one that ends in * or : matches every type with that beginning
	After string   // a JobPage.Next: go on from there
	Max   int      // jobs of a page; 0 means MaxJobs, which is also the maximum

	// For work on all jobs of a list: archived jobs begin with the oldest. If a list goes on
	// later, it leaves out jobs that failed or were archived since it was begun.
	works bool
	later bool     // an earlier call has begun it
	not   JobState // a state to leave out; empty: none
	value bool     // Limit is the limiter of a value, and its own line has the jobs in line
	// hasValue reports whether a limiter whose name begins with that of Limit is one of its values; nil: each may be.
	hasValue func(limiter string) bool
	// of reads the payloads, and only keeps the jobs for which it is true.
	of func(queue string, m line.Message) bool
}

// MaxJobs is how many jobs a page has at most.
const MaxJobs = 500

// maxRead is how many tasks are read for a page at most.
const maxRead = 1000

// maxBytes is how many bytes of messages are read for a page, apart from its last round trip.
// The bound is there because Redis copies them.
const maxBytes = 32 << 20

// maxPayloads is the same where payloads are read: they are also parsed here.
const maxPayloads = 2 << 20

// JobPage is a part of a list of jobs.
type JobPage struct {
	At   time.Time // when it was read; all its times are by Redis's clock
	Jobs []Job
	// Next is where the list goes on after this page; empty if it was the last. A page may have
	// few jobs or none and not be the last, if few of many tasks match.
	Next string
}

// ErrBadCursor says that JobQuery.After is no JobPage.Next.
var ErrBadCursor = errors.New("not a cursor of a list of jobs")

// Jobs lists jobs over the whole fleet, queue by queue. The states are in the order of
// JobStates, but failed jobs come between those that wait, in asynq's order of retries. With
// Limit, the jobs in its line come first, in their order. Archived jobs begin with the newest.
//
// It changes nothing. It reads at most 1,000 tasks for a page, fewer if they are large, and the
// limiters of the page's jobs (at most 50; jobs of other limiters have no Next). While jobs
// move, a list may have a job on two pages. A job that does not move is always in it.
func (i *Inspector) Jobs(ctx context.Context, q JobQuery) (JobPage, error) {
	page, err := i.list(ctx, q)
	if err != nil {
		return JobPage{}, err
	}
	return page, i.judge(ctx, &page)
}

// list is Jobs without reading the limiters.
func (i *Inspector) list(ctx context.Context, q JobQuery) (JobPage, error) {
	now, err := i.rdb.Time(ctx).Result()
	if err != nil {
		return JobPage{}, fmt.Errorf("ask Redis for the time: %w", err)
	}
	queues, err := i.Queues(ctx)
	if err != nil {
		return JobPage{}, err
	}
	r := jobReader{i: i, query: q, most: MaxJobs, page: JobPage{At: now}, began: now.Unix()}
	if q.Max > 0 {
		r.most = min(q.Max, MaxJobs)
	}
	stops := stopsOf(queues, q)
	at := cursor{}
	if q.After != "" {
		if at, err = parseCursor(q.After); err != nil {
			return JobPage{}, err
		}
		if at.Began > 0 {
			r.began = at.Began
		}
		from := slices.IndexFunc(stops, func(s stop) bool { return s == at.Stop })
		if from < 0 { // its queue is gone: go on with the queues after it
			from = slices.IndexFunc(stops, func(s stop) bool { return s.Queue > at.Stop.Queue })
			if at.Last = (line.Entry{}); from < 0 {
				from = len(stops)
			}
		}
		stops = stops[from:]
	}
	for n, s := range stops {
		last := line.Entry{}
		if n == 0 {
			last = at.Last
		}
		more, err := r.readStop(ctx, s, last)
		if err != nil {
			return JobPage{}, fmt.Errorf("list jobs of queue %q: %w", s.Queue, err)
		}
		if more {
			break
		}
		r.page.Next = ""
	}
	r.page.Jobs = lastOfEach(r.page.Jobs)
	return r.page, nil
}

// lastOfEach removes the earlier entry of jobs that moved while the page was read.
func lastOfEach(jobs []Job) []Job {
	last := make(map[JobID]int, len(jobs))
	for n, j := range jobs {
		last[JobID{j.Queue, j.ID}] = n
	}
	if len(last) == len(jobs) {
		return jobs
	}
	var once []Job
	for n, j := range jobs {
		if last[JobID{j.Queue, j.ID}] == n {
			once = append(once, j)
		}
	}
	return once
}

// jobReader fills a page.
type jobReader struct {
	i     *Inspector
	query JobQuery
	most  int
	read  int
	bytes int64
	page  JobPage
	began int64 // when the list was begun, in seconds after 1970
}

// shownOfError is how much of an error a list shows, in bytes. A handler may return an API's
// whole answer, and a list has hundreds of errors.
const shownOfError = 2048

func clip(text string) string {
	if len(text) <= shownOfError {
		return text
	}
	text = strings.ToValidUTF8(text[:shownOfError], "")
	if at := strings.LastIndexAny(text, " \t\n"); at > shownOfError/2 { // half a word may be a secret that is not recognized
		text = text[:at]
	}
	return text + " ..."
}

// readAtOnce is how many tasks one round trip reads at most.
const readAtOnce = 100

// readStop reads a shelf, starting after the task last. It reports whether the page ends there,
// with Next set.
func (r *jobReader) readStop(ctx context.Context, s stop, last line.Entry) (full bool, err error) {
	paused := false
	if s.Shelf == line.Pending {
		if paused, err = r.i.lines.Paused(ctx, s.Queue); err != nil {
			return false, err
		}
	}
	mostBytes := int64(maxBytes)
	if r.query.of != nil {
		mostBytes = maxPayloads
	}
	for {
		entries, err := r.i.lines.Shelf(ctx, s.Queue, s.Shelf, last, readAtOnce)
		if err != nil || len(entries) == 0 {
			return false, err
		}
		stored, bytes, err := r.i.lines.Stored(ctx, s.Queue, entries, r.query.of != nil)
		if err != nil {
			return false, err
		}
		for n, t := range stored {
			if len(r.page.Jobs) == r.most || r.read >= maxRead || r.bytes > mostBytes {
				r.page.Next = r.next(s, last)
				return true, nil
			}
			if job, ok := jobOf(s, entries[n], t, paused); ok && r.wants(job, s, t) {
				r.page.Jobs = append(r.page.Jobs, job)
			}
			last = entries[n]
			r.read++
		}
		r.bytes += bytes
	}
}

// next is where the list goes on after a task.
func (r *jobReader) next(s stop, last line.Entry) string {
	p := cursor{Stop: s, Last: last}
	if r.query.works {
		p.Began = r.began
	}
	return p.String()
}

// wants reports whether a job of a stop belongs on the page.
func (r *jobReader) wants(j Job, s stop, t line.Stored) bool {
	switch {
	case !r.query.matches(j, s):
		return false
	case r.query.later && j.State != Waiting && j.Since.Unix() > r.began:
		return false
	}
	return r.query.of == nil || r.query.of(j.Queue, t.Message)
}

// matches reports whether the query asks for a job of a stop.
func (q JobQuery) matches(j Job, s stop) bool {
	switch {
	case q.State != "" && j.State != q.State, q.not != "" && j.State == q.not:
		return false
	case q.Type != "" && !typeMatches(q.Type, j.Type):
		return false
	case q.Limit == "":
		return true
	case j.Limit == q.Limit: // these come from the limiter's own line, unless tenants have their own lines
		return s.Shelf != line.Retrying || j.shared
	}
	return strings.HasPrefix(j.Limit, q.Limit+":") && (q.hasValue == nil || q.hasValue(j.Limit))
}

func typeMatches(pattern, name string) bool {
	switch prefix, star := strings.CutSuffix(pattern, "*"); {
	case star:
		return strings.HasPrefix(name, prefix)
	case strings.HasSuffix(pattern, ":"):
		return strings.HasPrefix(name, pattern)
	}
	return pattern == name
}
