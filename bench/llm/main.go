// Command llm shows how much of an LLM API's limits a fleet uses if its jobs only estimate
// their cost in tokens, and whether the fleet keeps the limits. Four workers call a stand-in
// that counts requests and tokens in sliding windows. The true cost of a job is 0.3 to 1.5
// times its estimate. It starts a redis-server of its own.
//
//	go run ./bench/llm                     500 requests and 90,000 tokens a minute, ten times as fast
//	go run ./bench/llm --speed 1           as they are: about five minutes
//	go run ./bench/llm --estimate 100      so that requests are the tighter limit
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
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

const (
	requests = 500
	tokens   = 90_000
)

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("llm", flag.ContinueOnError)
	speed := flags.Float64("speed", 10, "how many times faster than by the minute the limits give their permits")
	minutes := flags.Float64("minutes", 4, "how many of these minutes the jobs are enough for")
	estimate := flags.Int64("estimate", 300, "tokens that a job says it costs, on average")
	took := flags.Duration("call", time.Second, "how long a call of the API takes, by the minute")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *speed <= 0 || *minutes < 2 || *estimate < 2 || *took < 0 {
		return errors.New("want a speed above 0, 2 minutes or more, an estimate of 2 or more and a call of 0 or more")
	}
	server, err := redisserver.Start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	scaled := func(d time.Duration) time.Duration { return time.Duration(float64(d) / *speed) }
	r := load{
		addr: server.Addr, interval: scaled(time.Minute).Round(time.Millisecond), call: scaled(*took), estimate: *estimate, minutes: *minutes,
	}
	report, used, err := r.measure(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("limits                       %d requests and %d tokens in %v\n", requests, tokens, r.interval)
	fmt.Printf("sent                         %d requests, %d tokens in %v\n", report.Requests, report.Tokens, report.Spread.Round(time.Millisecond))
	fmt.Printf("busiest interval             %d requests, %d tokens\n", report.BusiestRequests, report.BusiestTokens)
	fmt.Printf("unsettled underestimates     at most %d tokens\n", report.Unsettled)
	fmt.Printf("above the limit beyond them  %d tokens\n", report.Unexplained)
	fmt.Printf("used of the tighter limit    %.1f %%\n", 100*used)
	if report.BusiestRequests > requests || report.Unexplained > 0 {
		return errors.New("the limits were exceeded")
	}
	return nil
}
