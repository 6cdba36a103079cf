//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/check"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/fault"
	"github.com/jobthrottle/jobthrottle/bench/chaos/internal/site"
)

// measured is the results of all runs.
type measured struct {
	opts     options
	began    time.Time
	took     time.Duration
	seeds    []uint64 // of results
	results  []check.Result
	jobs     int // enqueued in all runs
	crashes  []check.Crash
	failures []error // runs that could not be finished
}

// chaos measures, writes, and returns an error if a promise was broken. It leaves
// no process behind, and files only if something went wrong.
func chaos(ctx context.Context, opts options, stdout, stderr io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "jobthrottle-chaos-")
	if err != nil {
		return err
	}
	defer func() {
		if err == nil || ctx.Err() != nil {
			err = errors.Join(err, os.RemoveAll(dir))
			return
		}
		err = fmt.Errorf("%w\nrecords and logs are in %s", err, dir)
	}()
	m := measured{opts: opts, began: time.Now()}
	if err := m.measure(ctx, dir, stdout, stderr); err != nil {
		return err
	}
	if opts.operators {
		return errors.Join(m.failures...)
	}
	m.took = time.Since(m.began)
	return errors.Join(write(m, stdout), m.verdict())
}

// measure runs one seed after the other. A run that fails is recorded, and the others go on.
// The error is that of ctx, or of something that all runs need.
func (m *measured) measure(ctx context.Context, dir string, stdout, stderr io.Writer) error {
	fmt.Fprintln(stderr, "building worker and enqueue")
	programs, err := site.Build(ctx, dir)
	if err != nil {
		return err
	}
	faults := m.opts.faults()
	if slices.ContainsFunc(faults, func(f fault.Fault) bool { return f.Name == fault.Clock }) {
		fmt.Fprintln(stderr, "building a worker whose clock can be wrong; the first time, that takes minutes")
		if programs.Shifted, err = site.BuildShifted(ctx, dir); err != nil {
			return err
		}
	}
	for i := 0; len(faults) > 0 && i < m.opts.seeds; i++ {
		seed := m.opts.seed + uint64(i)
		slots := fault.Schedule(seed, m.opts.length, faults)
		fmt.Fprintf(stderr, "run %d of %d, about %v left: seed %d, %s ... ",
			i+1, m.opts.seeds, time.Duration(m.opts.seeds-i)*m.opts.length, seed, describe(slots))
		stop := progress(stderr)
		result, err := m.run(ctx, programs, seed, slots, filepath.Join(dir, fmt.Sprintf("seed-%d", seed)), stdout)
		stop()
		if ctx.Err() != nil {
			return errors.New("interrupted: nothing was written")
		}
		if err != nil {
			fmt.Fprintln(stderr, "failed")
			m.failures = append(m.failures, fmt.Errorf("seed %d: %w", seed, err))
			continue
		}
		if m.opts.operators {
			fmt.Fprintln(stderr, "done")
			continue
		}
		fmt.Fprintln(stderr, summary(result))
		m.seeds = append(m.seeds, seed)
		m.results = append(m.results, result)
		m.jobs += result.Jobs
	}
	if !m.opts.crashes() {
		return nil
	}
	fmt.Fprintf(stderr, "a worker dies %d times, about %v ... ", deaths, deathsTake)
	m.crashes, err = die(ctx, programs, filepath.Join(dir, crash))
	if ctx.Err() != nil {
		return errors.New("interrupted: nothing was written")
	}
	if err != nil {
		m.failures = append(m.failures, fmt.Errorf("%s: %w", crash, err))
	}
	fmt.Fprintln(stderr, "done")
	return nil
}

// progress writes how many minutes have passed, each minute until stop is called.
func progress(stderr io.Writer) (stop func()) {
	every, done := time.NewTicker(time.Minute), make(chan struct{})
	var writes sync.WaitGroup
	writes.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-every.C:
				fmt.Fprintf(stderr, "%dm ", n)
			case <-done:
				return
			}
		}
	})
	return func() {
		every.Stop()
		close(done)
		writes.Wait()
	}
}

// run is one run, of a kind that the flags say.
func (m *measured) run(ctx context.Context, programs site.Programs, seed uint64, slots []fault.Slot, dir string, stdout io.Writer) (check.Result, error) {
	if m.opts.operators {
		return check.Result{}, operated(ctx, programs, seed, slots, m.opts.length, dir, stdout)
	}
	return mixed(ctx, programs, slots, m.opts.length, dir)
}

// verdict returns an error if a promise was broken, or could not be checked.
func (m *measured) verdict() error {
	errs := slices.Clone(m.failures)
	for i, r := range m.results {
		if m.exempt() {
			break
		}
		if r.Busiest.Above > 0 {
			errs = append(errs, fmt.Errorf("seed %d: %d arrivals in one interval, the limit was %d; %d intervals were above it",
				m.seeds[i], r.Busiest.Arrivals, r.Busiest.Limit, r.Busiest.Above))
		}
		if len(r.Lost) > 0 {
			errs = append(errs, fmt.Errorf("seed %d: %d jobs lost: %s", m.seeds[i], len(r.Lost), some(r.Lost)))
		}
		if len(r.Unasked) > 0 {
			errs = append(errs, fmt.Errorf("seed %d: %d jobs arrived that were never enqueued: %s", m.seeds[i], len(r.Unasked), some(r.Unasked)))
		}
	}
	return errors.Join(errs...)
}

// exempt reports whether a fault of the run is documented to break promises.
func (m *measured) exempt() bool {
	return slices.ContainsFunc(m.opts.faults(), func(f fault.Fault) bool { return f.Exempt })
}
