// Command jobs measures how jobs wait for limits. It measures how long a backlog takes, as a
// ratio to the ideal time, and what each job costs Redis, compared with the same jobs under a
// limit that never binds. It also measures how fast jobs run whose limits never bind, compared
// with plain asynq. It starts a redis-server of its own.
//
//	go run ./bench/jobs                 all rows, 5 rounds; says of each bound whether it was reached
//	go run ./bench/jobs --check         the same; exit status 1 if a bound was missed, or a second had too many starts
//	go run ./bench/jobs --only accounts --rounds 3
//	go run ./bench/jobs --only alone    15 pairs beside asynq alone
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
	"github.com/jobthrottle/jobthrottle/bench/internal/wanted"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	var err error
	if args := os.Args[1:]; len(args) == 2 && args[0] == apiArg {
		err = serveAPI(args[1])
	} else {
		err = run(ctx, args)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("jobs", flag.ContinueOnError)
	only, rounds := flags.String("only", "", "measure only the rows whose name has this in it"), flags.Int("rounds", 5, "how often each row is measured")
	pairs := flags.Int("pairs", 15, "how often asynq alone is compared with asynq with limits that never bind")
	check := flags.Bool("check", false, "exit with 1 if a figure is not as wanted")
	starts := flags.Bool("starts", false, "print how many jobs started in each tenth of a second")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	var above error // more starts than a limit allows
	var missed wanted.Missed
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "row\tto the ideal time: median (worst)\tbusiest second\tscript calls a job\tRedis CPU a job\tthe same, never binding\tratio\twanted")
	for _, r := range rows() {
		if !strings.Contains(r.name, *only) {
			continue
		}
		var f figures
		for range *rounds {
			bound, err := r.measure(ctx, server, false)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			if *starts {
				fmt.Fprintln(os.Stderr, r.name, tenths(bound.starts))
			}
			free, err := r.measure(ctx, server, true)
			if err != nil {
				return fmt.Errorf("%s, never binding: %w", r.name, err)
			}
			f.add(r, bound, free)
		}
		fmt.Fprintln(table, f.row(r, &missed))
		if err := table.Flush(); err != nil {
			return err
		}
		above = errors.Join(above, f.above(r))
	}
	if strings.Contains(besideAsynq, *only) {
		if err := compareWithAsynq(ctx, server, *pairs, &missed); err != nil {
			return err
		}
	}
	if *check {
		return errors.Join(above, missed.Err())
	}
	return nil
}

// figures are what all rounds of a row measured.
type figures struct {
	took, calls, cpu, freeCalls, freeCPU []float64
	busiest                              []int // of all rounds, for each limit of the row
}

func (f *figures) add(r row, bound, free result) {
	f.took = append(f.took, spread(bound.starts).Seconds()/r.ideal().Seconds())
	f.calls, f.freeCalls = append(f.calls, bound.calls), append(f.freeCalls, free.calls)
	f.cpu, f.freeCPU = append(f.cpu, bound.cpu), append(f.freeCPU, free.cpu)
	f.busiest = append(f.busiest, make([]int, len(r.limits())-len(f.busiest))...)
	for i, l := range r.limits() {
		f.busiest[i] = max(f.busiest[i], busiest(bound.starts, l.of))
	}
}

// row is a line of the table.
func (f *figures) row(r row, missed *wanted.Missed) string {
	ideal, calls, ratio := median(f.took), median(f.calls), median(f.cpu)/median(f.freeCPU)
	reached := "-"
	if w := r.wanted; w != (bounds{}) {
		reached = strings.Join([]string{
			missed.AtMost(r.name, "ideal", ideal, w.ideal),
			missed.AtMost(r.name, "calls", calls, w.calls),
			missed.AtMost(r.name, "ratio", ratio, w.ratio),
		}, ", ")
	}
	var most []string
	for i, l := range r.limits() {
		most = append(most, fmt.Sprintf("%d of %d %s", f.busiest[i], l.permits, l.name))
	}
	return fmt.Sprintf("%s\t%.3f (%.3f)\t%s\t%.1f\t%.0f us\t%.1f calls, %.0f us\t%.1f\t%s", r.name, ideal, slices.Max(f.took), strings.Join(most, ", "),
		calls, median(f.cpu), median(f.freeCalls), median(f.freeCPU), ratio, reached)
}

// above is an error if more jobs started in a second than a limit of the row allows.
func (f *figures) above(r row) (err error) {
	for i, l := range r.limits() {
		if f.busiest[i] > l.permits {
			err = errors.Join(err, fmt.Errorf("%s: %d starts within a second %s, want at most %d", r.name, f.busiest[i], l.name, l.permits))
		}
	}
	return err
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}
