package main

import (
	"context"
	"errors"
	"io"

	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/cli"
	"github.com/jobthrottle/jobthrottle/internal/limitname"
	"github.com/jobthrottle/jobthrottle/throttle"
	"github.com/jobthrottle/jobthrottle/throttle/operate"
	"github.com/jobthrottle/jobthrottle/worker"
)

// session is one run of a verb: Redis and the standard streams.
type session struct {
	opts   *options
	rdb    redis.UniversalClient
	addrs  string         // of rdb, for what is not there
	config *config.Config // nil: no file was read
	fleet  *operate.Fleet
	parked *worker.Inspector
	client *throttle.Client // makes changes; it waits for no permits
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

// verb makes a command's RunE from what the command does once Redis has answered.
func verb(opts *options, do func(ctx context.Context, s *session, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		s, err := open(cmd.Context(), opts, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		s.stdin, s.stdout, s.stderr = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
		return errors.Join(wayOut(cmd.Name(), do(cmd.Context(), s, args)), s.close())
	}
}

// open connects to Redis.
func open(ctx context.Context, opts *options, stderr io.Writer) (*session, error) {
	opened, err := cli.OpenRedis(opts.config, opts.redis)
	if err != nil {
		return nil, err
	}
	opened.Tell(stderr)
	rdb := opened.Client
	if err := opened.Ping(ctx); err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	client, err := throttle.New(rdb, throttle.Options{})
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	fleet := operate.NewFleet(rdb)
	fleet.Skip = func(key string) bool { // a task (there may be a million), or what workers report about themselves
		owner, _ := limitname.Reserved(key)
		return owner != ""
	}
	return &session{opts: opts, rdb: rdb, addrs: opened.Addrs, config: opened.Config, fleet: fleet, parked: worker.NewInspector(rdb), client: client}, nil
}

// where says which Redis was asked, after what is not there: the user may have meant another.
func (s *session) where() string { return " in Redis at " + s.addrs }

func (s *session) close() error { return errors.Join(s.client.Close(), s.rdb.Close()) }

// configured returns a limit of the configuration that was read.
func (s *session) configured(name string) (config.Limit, bool) {
	if s.config == nil {
		return config.Limit{}, false
	}
	l, found := s.config.Limits[name]
	return l, found
}
