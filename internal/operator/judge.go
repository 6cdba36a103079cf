package operator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hibiken/asynq"
)

// Start is a job that started.
type Start struct {
	Job  string
	At   time.Duration
	Done bool // it ran to its end
}

// Cause is why a job may start again, beside what the operator did.
type Cause struct {
	Job   string
	At    time.Duration
	Why   string
	Early bool // it may not start again, but before it is due
}

// Again is a job that started again, and why.
type Again struct {
	Start
	Why string
}

// Ran is the cause of a job that the operator ran.
const Ran = "the operator ran it"

// Judge lists the starts of jobs that had started before, each with its cause. It returns an error
// for those that have none, for jobs that started although they were deleted or archived, or before
// they were due, and for jobs that Left found completed and that never ran to their end.
func (o *Operator) Judge(starts []Start, causes []Cause) (again []Again, err error) {
	byJob, causesOf := map[string][]Start{}, map[string][]Cause{}
	for _, s := range slices.SortedStableFunc(slices.Values(starts), func(a, b Start) int { return cmp.Compare(a.At, b.At) }) {
		byJob[s.Job] = append(byJob[s.Job], s)
	}
	for _, c := range causes {
		causesOf[c.Job] = append(causesOf[c.Job], c)
	}
	errs := slices.Clone(o.unexpected)
	for _, id := range o.ids {
		j := o.jobs[id]
		for i, s := range byJob[id] {
			since := time.Duration(0)
			if i > 0 {
				since = byJob[id][i-1].At
			}
			why := j.why(since, s.At, causesOf[id])
			if s.At < j.due && !j.early(s.At, causesOf[id]) {
				errs = append(errs, j.wrong("%s started %v before it was due", id, j.due-s.At))
			}
			switch {
			case i > 0 && why == "":
				errs = append(errs, j.wrong("%s started at %v and again at %v without a cause", id, since, s.At))
			case i > 0:
				again = append(again, Again{s, why})
			}
			if why == "" && j.barred(s.At) {
				errs = append(errs, j.wrong("%s started at %v, though it was deleted or archived before", id, s.At))
			}
		}
		if j.completed && !slices.ContainsFunc(byJob[id], func(s Start) bool { return s.Done }) {
			errs = append(errs, j.wrong("%s is completed, and never ran to its end", id))
		}
		delete(byJob, id)
	}
	for id := range byJob {
		errs = append(errs, fmt.Errorf("%s started, and nobody enqueued it", id))
	}
	return again, errors.Join(errs...)
}

// wrong is an error about a job, with what the operator did to it.
func (j *job) wrong(format string, args ...any) error {
	var acts []string
	for _, a := range j.acts {
		verb := "took it away"
		if a.runs {
			verb = "ran it"
		}
		if a.done == perhaps {
			verb = "perhaps " + verb
		}
		acts = append(acts, fmt.Sprintf("%s from %v to %v", verb, a.begin, a.end))
	}
	return fmt.Errorf(format+"; the operator: %q", append(args, acts)...)
}

// why returns why a job may start after a time and before another.
func (j *job) why(since, at time.Duration, causes []Cause) string {
	for _, c := range causes {
		if !c.Early && since <= c.At && c.At <= at {
			return c.Why
		}
	}
	for _, a := range j.acts {
		if a.runs && since <= a.end && a.begin <= at {
			return Ran
		}
	}
	return ""
}

// early reports whether a job may start before it is due.
func (j *job) early(at time.Duration, causes []Cause) bool {
	return slices.ContainsFunc(j.acts, func(a act) bool { return a.runs && a.begin <= at }) ||
		slices.ContainsFunc(causes, func(c Cause) bool { return c.Early && c.At <= at })
}

// barred reports whether a job was deleted or archived before, and not run since.
func (j *job) barred(at time.Duration) (barred bool) {
	for _, a := range j.acts {
		switch {
		case a.runs && a.begin <= at:
			barred = false
		case !a.runs && a.done == yes && a.end < at:
			barred = true
		}
	}
	return barred
}

// Left returns an error for each job that is lost, is not where it was put, or still waits. The
// fleet has to be done.
func (o *Operator) Left(ctx context.Context) error {
	var errs []error
	for _, id := range o.ids {
		j := o.jobs[id]
		info, err := o.Inspector.GetTaskInfo(j.queue, id)
		switch gone := errors.Is(err, asynq.ErrTaskNotFound); {
		case err != nil && !gone:
			return err
		case gone && j.deleted == no:
			errs = append(errs, j.wrong("%s is lost", id))
		case gone:
		case j.deleted == yes:
			errs = append(errs, j.wrong("%s was deleted, and is %v; %s", id, info.State, o.found(ctx, j.queue, id)))
		case j.shelved == yes && info.State != asynq.TaskStateArchived:
			errs = append(errs, j.wrong("%s was archived by hand, was not run since, and is %v; %s", id, info.State, o.found(ctx, j.queue, id)))
		case info.State == asynq.TaskStateCompleted:
			j.completed = true
		case info.State == asynq.TaskStateArchived:
			errs = append(errs, o.wronglyArchived(ctx, info))
		default:
			errs = append(errs, j.wrong("%s is stuck: it is %v: %+v; %s", id, info.State, info, o.found(ctx, j.queue, id)))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(errs...)
}

// checkArchive finds what is in the archive of a queue and does not belong there.
func (o *Operator) checkArchive(ctx context.Context, queue string) error {
	tasks, err := o.tasks(ctx, queue, o.Inspector.ListArchivedTasks)
	for _, task := range tasks {
		if err := o.wronglyArchived(ctx, task); err != nil {
			o.unexpected = append(o.unexpected, err)
		}
	}
	return err
}

// wronglyArchived is an error if an archived job was not archived by hand, and did not fail.
func (o *Operator) wronglyArchived(ctx context.Context, info *asynq.TaskInfo) error {
	j := o.jobs[info.ID]
	if j == nil || j.shelved != no || o.Failed(info) {
		return nil
	}
	return j.wrong("%s is archived, and nobody did that: %+v; %s", info.ID, info, o.found(ctx, j.queue, info.ID))
}
