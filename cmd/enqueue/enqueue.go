package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/expr"
	"github.com/jobthrottle/jobthrottle/internal/similar"
	"github.com/jobthrottle/jobthrottle/producer"
)

// counts is the result of a run. Its JSON is what --json prints.
type counts struct {
	Enqueued       int     `json:"enqueued"`
	AlreadyThere   int     `json:"already_there"`
	Archived       int     `json:"archived"` // a job with their id or unique lock failed for good: they would never run
	Bad            int     `json:"bad"`
	Seconds        float64 `json:"seconds"`
	LinesPerSecond float64 `json:"lines_per_second"`
}

// enqueue does what the command does, once its flags are checked.
func enqueue(ctx context.Context, opts options, stdin io.Reader, stdout, stderr io.Writer) error {
	rdb, err := cli.OpenRedis(opts.config, opts.redis)
	if err != nil {
		return err
	}
	defer rdb.Client.Close()
	rdb.Tell(stderr)
	if opts.jobType != "" {
		tellUnknownType(stderr, opts.jobType, rdb.Config)
		tellUnknownQueue(stderr, cmp.Or(opts.queue, "default"), rdb.Config)
	}

	screen := newScreen(stderr)
	in, err := openInput(ctx, opts, stdin, screen.bad)
	if err != nil {
		return err
	}
	defer in.close()
	if err := rdb.Ping(ctx); err != nil {
		return fmt.Errorf("%w; nothing is enqueued", err)
	}

	screen.start(in.total, opts.file == "")
	start := time.Now()
	var total counts
	err = feed(ctx, producer.New(rdb.Client), in, opts.replace, screen, &total)
	total.Seconds = time.Since(start).Seconds()
	total.LinesPerSecond = float64(total.Enqueued+total.AlreadyThere+total.Archived+total.Bad) / total.Seconds
	screen.stop()

	if opts.json {
		if err := json.NewEncoder(stdout).Encode(total); err != nil {
			return err
		}
	} else {
		archived := ""
		if total.Archived > 0 {
			archived = fmt.Sprintf("archived %d, ", total.Archived)
		}
		fmt.Fprintf(stdout, "enqueued %d, already there %d, %sbad %d in %.2fs (%.0f/s)\n",
			total.Enqueued, total.AlreadyThere, archived, total.Bad, total.Seconds, total.LinesPerSecond)
	}
	if err != nil {
		return err
	}
	switch {
	case total.Archived > 0:
		err = archivedJobs(total.Archived, opts.replace)
		fallthrough
	case total.Bad > 0:
		return errors.Join(err, badLines(total.Bad))
	case total.Enqueued+total.AlreadyThere == 0:
		return fmt.Errorf("%s has no job lines: write one JSON object a line", in.name)
	}
	return nil
}

// tellUnknownType warns if a type seems to be misspelt. The configuration cannot tell that for
// sure: it lacks jobs that have no limits.
func tellUnknownType(out io.Writer, jobType string, cfg *config.Config) {
	if cfg == nil {
		return
	}
	there := slices.Sorted(maps.Keys(cfg.Jobs))
	if slices.ContainsFunc(there, func(p string) bool { return expr.ParsePattern(p).Matches(jobType) }) {
		return
	}
	if hint := similar.Hint(jobType, there); hint != "" {
		fmt.Fprintf(out, "warning: no pattern under jobs of the configuration is of type %q%s\n", jobType, hint)
	}
}

// tellUnknownQueue warns if no worker of the configuration takes jobs from the queue. Others may.
func tellUnknownQueue(out io.Writer, queue string, cfg *config.Config) {
	if cfg == nil {
		return
	}
	var served []string
	for _, p := range cfg.Pools {
		served = slices.AppendSeq(served, maps.Keys(p.QueueWeights()))
	}
	if !slices.Contains(served, queue) {
		fmt.Fprintf(out, "warning: no pool of the configuration serves queue %q%s\n", queue, similar.Hint(queue, served))
	}
}

// archivedJobs is the error for n jobs that archived ones keep from running.
func archivedJobs(n int, replace bool) error {
	switch {
	case replace:
		return fmt.Errorf("%d archived, not replaced: other jobs of the same type and payload are there, and unique_for allows no second; if these are archived, throttle retry runs them", n)
	case n == 1:
		return errors.New("1 job is not enqueued: a job with its id or unique lock failed before and is archived; --replace replaces one with its id, throttle retry runs it again")
	}
	return fmt.Errorf("%d jobs are not enqueued: jobs with their ids or unique locks failed before and are archived; --replace replaces those with their ids, throttle retry runs them again", n)
}

// badLines is the error for n bad lines, if there are any.
func badLines(n int) error {
	switch n {
	case 0:
		return nil
	case 1:
		return errors.New("1 bad line, see above; the others are enqueued")
	}
	return fmt.Errorf("%d bad lines, see above; the others are enqueued", n)
}

// shownArchived is how many archived jobs are named at most.
const shownArchived = 20

// feed enqueues all good lines of in.
func feed(ctx context.Context, p *producer.Producer, in *input, replace bool, screen *screen, total *counts) error {
	stream := p.Stream(ctx, producer.StreamEvents{
		Done: func(r producer.Result) {
			switch {
			case errors.Is(r.Err, producer.ErrArchived):
				if total.Archived++; total.Archived <= shownArchived {
					screen.print(fmt.Sprintf("line %d: %v", r.Line, r.Err))
				}
			case r.Err != nil:
				total.AlreadyThere++
			default:
				total.Enqueued++
			}
		},
		Outage: func(err error) {
			screen.print("Redis does not take jobs, trying on until it does or you press Ctrl-C: " + err.Error())
		},
	})
	bad := 0
	err := readInto(ctx, stream, in, replace, func(line producer.Line) {
		bad++
		screen.bad(line)
	}, screen.progress)
	ended := stream.Close() // from here on, nobody else writes total
	total.Bad = bad
	var cut *producer.StreamError
	switch {
	case errors.As(ended, &cut) && ctx.Err() != nil:
		return fmt.Errorf("interrupted after %s %d, the last that is certain: %s", in.unit, cut.Line, in.advice)
	case ended != nil:
		return ended
	default:
		return err
	}
}

// readInto adds the lines of in to the stream, until the last line or until in or the stream
// ends early.
func readInto(ctx context.Context, stream *producer.Stream, in *input, replace bool, bad func(producer.Line), progress func(int64)) error {
	for ctx.Err() == nil {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return in.readError(err)
		}
		line.Job.Replace = replace
		if line.Err != nil {
			bad(line)
		} else if err := stream.Add(line.Number, line.Job); err != nil {
			return err
		}
		progress(in.Offset())
	}
	return in.readError(ctx.Err())
}
