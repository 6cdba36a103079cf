package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/producer"
)

// source is where the jobs come from: a *producer.Reader or a *generator.
type source interface {
	Next() (producer.Line, error) // io.EOF after the last
	Offset() int64                // the progress, up to input.total
}

// input is an opened source.
type input struct {
	source
	name  string // for errors
	total int64  // bytes of the file, or jobs to make; -1 if unknown
	close func()

	unit   string // what an interruption counts: "line" or "job"
	advice string // what happens if the command runs again after an interruption
}

// openInput opens what the flags name. In strict mode it has read everything once, and the
// source begins again.
func openInput(ctx context.Context, opts options, stdin io.Reader, bad func(producer.Line)) (*input, error) {
	if opts.file == "" {
		return makeInput(opts)
	}
	opened, err := cli.OpenInput(ctx, opts.file, stdin)
	if err != nil {
		return nil, err
	}
	in := &input{
		source: producer.NewReader(opened), name: opened.Name, total: -1, close: opened.Close,
		unit: "line", advice: "run it again, lines with ids are not doubled",
	}
	if opened.Regular {
		in.total = opened.Rest
	}
	if !opts.strict {
		return in, nil
	}
	if err := in.restart(ctx, opened, bad); err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

// restart reads all lines. If every line is good, it starts again from the first. What cannot be
// read twice is copied into a temporary file meanwhile.
func (in *input) restart(ctx context.Context, from *cli.Input, bad func(producer.Line)) error {
	again, _ := from.Reader.(io.ReadSeeker)
	if !from.Regular {
		spool, err := os.CreateTemp("", "enqueue-*.ndjson")
		if err != nil {
			return fmt.Errorf("--strict needs a temporary file to read %s twice: %w", in.name, err)
		}
		gone := os.Remove(spool.Name()) == nil // an open file goes on without its name, and nothing stays if the process is killed
		closeInput := in.close
		in.close = func() {
			closeInput()
			spool.Close()
			if !gone {
				os.Remove(spool.Name())
			}
		}
		in.source = producer.NewReader(io.TeeReader(from, spool))
		again = spool
	}
	lines, wrong := 0, 0
	for {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return fmt.Errorf("nothing enqueued: %w", in.readError(err))
		}
		lines++
		if line.Err != nil {
			wrong++
			bad(line)
		}
	}
	if wrong > 0 {
		return fmt.Errorf("nothing enqueued: %d of %d lines of %s are bad", wrong, lines, in.name)
	}
	if _, err := again.Seek(from.Start, io.SeekStart); err != nil {
		return in.readError(err)
	}
	in.source = producer.NewReader(again)
	return nil
}

func (in *input) readError(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	return fmt.Errorf("cannot read %s: %w", in.name, err)
}

// generator makes the same job many times.
type generator struct {
	job  producer.Job
	made int64
	want int64
}

func makeInput(opts options) (*input, error) {
	payload := json.RawMessage(opts.payload)
	if len(payload) > 0 && (!json.Valid(payload) || !utf8.Valid(payload)) {
		return nil, &cli.UsageError{Err: fmt.Errorf("--payload is not JSON: %s", clip(payload))}
	}
	job := producer.Job{Type: opts.jobType, Payload: payload, Queue: opts.queue}
	if err := job.Validate(); err != nil {
		return nil, &cli.UsageError{Err: fmt.Errorf("--%w", err)}
	}
	return &input{
		source: &generator{job: job, want: opts.count},
		name:   "--type", total: opts.count, close: func() {},
		unit: "job", advice: "these have no ids, so running it again adds all of them again",
	}, nil
}

func (g *generator) Next() (producer.Line, error) {
	if g.made == g.want {
		return producer.Line{}, io.EOF
	}
	g.made++
	return producer.Line{Number: int(g.made), Job: g.job}, nil
}

func (g *generator) Offset() int64 { return g.made }

// clip shortens what a user wrote, so that an error fits into one line.
func clip(b []byte) string {
	const most = 64
	b = bytes.ToValidUTF8(b, []byte("?"))
	if len(b) > most {
		return string(bytes.ToValidUTF8(b[:most], nil)) + "..."
	}
	return string(b)
}
