// Command shares shows how tenants share a limit in a fleet of worker processes. It starts a
// redis-server of its own, and judges by the times at which jobs run.
//
//	go run ./bench/shares                  all of it: about four minutes
//	go run ./bench/shares --only weights   one of newcomer, nine, weights, alone, memory, cpu
//
// It fails if a figure is not reached.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
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

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("shares", flag.ContinueOnError)
	only := flags.String("only", "", "one of newcomer, nine, weights, alone, memory, cpu")
	hog := flags.Int("hog", 100_000, "jobs of the tenant beside the nine")
	as := flags.String("worker", "", "run a worker of this configuration (the command starts itself so)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *as != "" {
		return work(ctx, *as)
	}
	known := false
	var errs []error
	for _, row := range []struct {
		name    string
		measure func(context.Context) (string, bool, error)
	}{
		{"newcomer", newcomer}, {"nine", func(ctx context.Context) (string, bool, error) { return nine(ctx, *hog) }},
		{"weights", weights}, {"alone", alone}, {"memory", memory}, {"cpu", cpu},
	} {
		if *only != "" && *only != row.name {
			continue
		}
		known = true
		text, ok, err := row.measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", row.name, err)
		}
		fmt.Println(text)
		if !ok {
			errs = append(errs, fmt.Errorf("%s: the figure is not reached", row.name))
		}
	}
	if !known {
		return fmt.Errorf("nothing is named %q", *only)
	}
	return errors.Join(errs...)
}
