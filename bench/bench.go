package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/peer"
	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
	"github.com/jobthrottle/jobthrottle/bench/internal/report"
	"github.com/jobthrottle/jobthrottle/bench/internal/scenario"
	"github.com/jobthrottle/jobthrottle/internal/redisson"
)

// bench starts what is needed, measures, and writes the report. It leaves no process and no
// file behind except the report, even if ctx ends.
func bench(ctx context.Context, opts options, stdout, stderr io.Writer) (err error) {
	begin := time.Now()
	server, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()

	r := report.Report{Date: begin, Rounds: opts.rounds, Machine: report.Machine()}
	b := scenario.Bench{Server: server, Size: scenario.Full()}
	if opts.quick {
		b.Size = scenario.Quick()
		r.Notes = append(r.Notes, "A quick run: it shows that everything runs, its figures mean nothing.")
	}
	facts, err := redisFacts(ctx, server)
	if err != nil {
		return err
	}
	r.Machine = append(r.Machine, facts...)

	fmt.Fprintln(stderr, "starting Redisson; the first time, Maven has to build its program")
	switch b.Redisson, err = peer.StartRedisson(ctx, server.Addr); {
	case errors.Is(err, redisson.ErrNoJava):
		note := fmt.Sprintf("Redisson is left out, for there is nothing to run it with: %v", err)
		r.Notes = append(r.Notes, note)
		fmt.Fprintln(stderr, note)
	case err != nil:
		return err
	default:
		defer func() {
			if closed := b.Redisson.Close(); ctx.Err() == nil { // the end of ctx has killed the JVM
				err = errors.Join(err, closed)
			}
		}()
		r.Machine = append(r.Machine, report.Fact{Name: "Java", Value: report.Java()}, report.Fact{Name: "Redisson", Value: b.Redisson.Version()})
	}

	scenarios := slices.DeleteFunc(b.All(), func(s scenario.Scenario) bool { return !opts.wants(s.Name) })
	m, err := measure(ctx, scenarios, opts.rounds, stderr)
	if err != nil {
		return err
	}
	r.Took = time.Since(begin)
	r.Sections = m.sections(scenarios)
	for _, failure := range m.failures {
		r.Notes = append(r.Notes, "Failed, and left out: "+failure.Error())
	}
	if !opts.quick {
		r.Targets = m.targets()
	}
	return errors.Join(write(r, m.plot(), opts, stdout), errors.Join(m.failures...))
}

// redisFacts are the properties of the server that the figures depend on.
func redisFacts(ctx context.Context, server *redisserver.Server) ([]report.Fact, error) {
	version, err := server.Version(ctx)
	if err != nil {
		return nil, err
	}
	const length = 2 * time.Second
	before, err := server.Usage(ctx)
	if err != nil {
		return nil, err
	}
	select {
	case <-time.After(length):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	after, err := server.Usage(ctx)
	if err != nil {
		return nil, err
	}
	idle := after.Sub(before).CPU / time.Duration(length/time.Second)
	return []report.Fact{
		{Name: "Redis", Value: version},
		{Name: "Redis, idle", Value: fmt.Sprintf("%v of CPU per second, which is part of all figures of CPU", idle.Round(100*time.Microsecond))},
	}, nil
}
