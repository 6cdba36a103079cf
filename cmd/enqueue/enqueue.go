package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/producer"
)

// counts is what a run comes to. Its JSON is what --json prints.
type counts struct {
	Enqueued       int     `json:"enqueued"`
	AlreadyThere   int     `json:"already_there"`
	Bad            int     `json:"bad"`
	Seconds        float64 `json:"seconds"`
	LinesPerSecond float64 `json:"lines_per_second"`
}

// enqueue is the command behind its flags.
func enqueue(ctx context.Context, opts options, stdin io.Reader, stdout, stderr io.Writer) error {
	rdb, err := cli.OpenRedis(opts.config, opts.redis)
	if err != nil {
		return err
	}
	defer rdb.Client.Close()
	rdb.Tell(stderr)

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
	err = feed(ctx, producer.New(rdb.Client), in, screen, &total)
	total.Seconds = time.Since(start).Seconds()
	total.LinesPerSecond = float64(total.Enqueued+total.AlreadyThere+total.Bad) / total.Seconds
	screen.stop()

	if opts.json {
		if err := json.NewEncoder(stdout).Encode(total); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(stdout, "enqueued %d, already there %d, bad %d in %.2fs (%.0f/s)\n",
			total.Enqueued, total.AlreadyThere, total.Bad, total.Seconds, total.LinesPerSecond)
	}
	switch {
	case err != nil:
		return err
	case total.Bad == 1:
		return errors.New("1 bad line, see above; the others are enqueued")
	case total.Bad > 1:
		return fmt.Errorf("%d bad lines, see above; the others are enqueued", total.Bad)
	case total.Enqueued+total.AlreadyThere == 0:
		return fmt.Errorf("%s has no job lines: write one JSON object a line", in.name)
	}
	return nil
}

// feed enqueues all good lines of in.
func feed(ctx context.Context, p *producer.Producer, in *input, screen *screen, total *counts) error {
	stream := p.Stream(ctx, producer.StreamEvents{
		Done: func(r producer.Result) {
			if r.Err != nil {
				total.AlreadyThere++
			} else {
				total.Enqueued++
			}
		},
		Outage: func(err error) {
			screen.print("Redis does not take jobs, trying on until it does or you press Ctrl-C: " + err.Error())
		},
	})
	bad := 0
	err := readInto(ctx, stream, in, func(line producer.Line) {
		bad++
		screen.bad(line)
	}, screen.progress)
	ended := stream.Close() // from here on, total is ours
	total.Bad = bad
	var cut *producer.StreamError
	switch {
	case errors.As(ended, &cut) && ctx.Err() != nil:
		return fmt.Errorf("interrupted after line %d, the last that is certain%s", cut.Line, in.advice)
	case ended != nil:
		return ended
	default:
		return err
	}
}

// readInto adds the lines of in to the stream until the last, or until one of the two ends early.
func readInto(ctx context.Context, stream *producer.Stream, in *input, bad func(producer.Line), progress func(int64)) error {
	for ctx.Err() == nil {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return in.readError(err)
		}
		if line.Err != nil {
			bad(line)
		} else if err := stream.Add(line.Number, line.Job); err != nil {
			return err
		}
		progress(in.Offset())
	}
	return in.readError(ctx.Err())
}
