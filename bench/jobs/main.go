// Command jobs measures how jobs wait for limits. It measures how long a backlog takes, as a
// ratio to the ideal time, and what each job costs Redis, compared with the same jobs under a
// limit that never binds. It also measures how fast jobs run whose limits never bind, compared
// with plain asynq. It starts a redis-server of its own.
//
//	go run ./bench/jobs                 all rows, 3 rounds
//	go run ./bench/jobs --only accounts --rounds 5
//	go run ./bench/jobs --only alone    15 pairs beside asynq alone
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jobthrottle/jobthrottle/bench/internal/redisserver"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("jobs", flag.ContinueOnError)
	only, rounds := flags.String("only", "", "measure only the rows whose name has this in it"), flags.Int("rounds", 3, "how often each row is measured")
	pairs := flags.Int("pairs", 15, "how often asynq alone is compared with asynq with limits that never bind")
	starts := flags.Bool("starts", false, "print how many jobs started in each tenth of a second")
	if err := flags.Parse(args); err != nil {
		return err
	}
	server, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer func() {
		if stopped := server.Stop(); err == nil {
			err = stopped
		}
	}()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "row\tto the ideal time: median (worst)\tbusiest to limit\tscript calls a job\tRedis CPU a job\tthe same, never binding\tratio")
	for _, r := range rows() {
		if !strings.Contains(r.name, *only) {
			continue
		}
		var took, busiest, calls, cpu, freeCPU, freeCalls []float64
		for range *rounds {
			bound, err := r.measure(ctx, server, false)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			if *starts {
				fmt.Fprintln(os.Stderr, r.name, bound.starts)
			}
			free, err := r.measure(ctx, server, true)
			if err != nil {
				return fmt.Errorf("%s, never binding: %w", r.name, err)
			}
			took, busiest = append(took, bound.took.Seconds()/r.ideal().Seconds()), append(busiest, bound.busiest)
			calls, freeCalls = append(calls, bound.calls), append(freeCalls, free.calls)
			cpu, freeCPU = append(cpu, bound.cpu), append(freeCPU, free.cpu)
		}
		fmt.Fprintf(table, "%s\t%.3f (%.3f)\t%.2f\t%.1f\t%.0f us\t%.1f calls, %.0f us\t%.1f\n", r.name, median(took), slices.Max(took), slices.Max(busiest),
			median(calls), median(cpu), median(freeCalls), median(freeCPU), median(cpu)/median(freeCPU))
		if err := table.Flush(); err != nil {
			return err
		}
	}
	if strings.Contains(besideAsynq, *only) {
		return compareWithAsynq(ctx, server, *pairs)
	}
	return nil
}

func median(xs []float64) float64 {
	xs = slices.Sorted(slices.Values(xs))
	return xs[len(xs)/2]
}

// idle is how long the fleet is measured without jobs. That cost is subtracted.
const idle = 3 * time.Second
