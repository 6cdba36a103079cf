package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
	"github.com/jobthrottle/jobthrottle/internal/patient"
	"github.com/jobthrottle/jobthrottle/internal/plain"
	"github.com/jobthrottle/jobthrottle/internal/refusal"
)

// Redis is the Redis that a command's flags name.
type Redis struct {
	Client redis.UniversalClient // the command closes it
	Addrs  string                // for messages
	Config *config.Config        // the file that was read; nil if none was
	note   string                // what to print about a file that nobody named

	addrsOfFile    bool
	passwordOfFile bool // a wrong password has to be corrected in the file
	overTLS        bool
}

// DefaultConfig is the configuration file of a command without --config.
const DefaultConfig = "config.yaml"

// Tell prints which file was read if nobody named it, or why it was not. A command that runs in
// another directory may use another Redis.
func (r Redis) Tell(out io.Writer) {
	if r.note != "" {
		fmt.Fprintln(out, r.note)
	}
}

// UsingDefault says that the command reads the file of the working directory.
const UsingDefault = "using " + DefaultConfig + " of this directory"

// OpenRedis returns the Redis that addr names, the value of --redis. If addr is empty, it is
// the one in the configuration file at path, which defaults to config.yaml if that exists. If
// there is an address, a broken config.yaml that nobody named is ignored. OpenRedis makes no
// connection. An error is a *UsageError.
func OpenRedis(path, addr string) (Redis, error) {
	r, err := openRedis(path, addr)
	if err != nil {
		return Redis{}, &UsageError{Err: err}
	}
	return r, nil
}

func openRedis(path, addr string) (r Redis, err error) {
	cfg, err := r.read(path, addr)
	if err != nil {
		return r, err
	}
	if strings.Contains(addr, "://") {
		r.Client, r.Addrs, err = fromURL(addr)
		r.overTLS = strings.HasPrefix(addr, "rediss:")
		return r, err
	}
	if addr != "" {
		cfg.Redis.Addrs, cfg.Redis.SentinelMaster = strings.Split(addr, ","), ""
		for _, one := range cfg.Redis.Addrs {
			switch _, port, err := net.SplitHostPort(one); {
			case strings.ContainsAny(one, "@/?"): // it may contain a password, which no error shows
				return r, errors.New("--redis is not an address: want host:port, such as 127.0.0.1:6379, or " + urlAdvice)
			case err != nil || port == "":
				return r, fmt.Errorf("--redis %q is not an address: want host:port, such as 127.0.0.1:6379, or a redis:// URL", addr)
			}
		}
	}
	r.addrsOfFile = r.Config != nil && addr == ""
	r.passwordOfFile = r.Config != nil && (addr == "" || cfg.Redis.Password != "")
	if !r.passwordOfFile {
		cfg.Redis.Password = os.Getenv(passwordEnv)
	}
	r.Addrs, r.overTLS = strings.Join(cfg.Redis.Addrs, ", "), cfg.Redis.TLS
	r.Client, err = cfg.Redis.NewClient()
	return r, err
}

// read returns the configuration to start from.
func (r *Redis) read(path, addr string) (*config.Config, error) {
	named := path != ""
	if !named {
		path = DefaultConfig
		if _, err := os.Stat(path); err != nil {
			return config.Default(), nil
		}
	}
	cfg, err := config.Load(path)
	switch {
	case err == nil && !named:
		r.note = UsingDefault
	case err != nil && !named && addr != "":
		r.note = hideSecrets("warning: " + DefaultConfig + " of this directory is not used: " + plain.Text(err.Error()))
		return config.Default(), nil
	case err != nil:
		return nil, err
	}
	r.Config = cfg
	return cfg, nil
}

// passwordEnv is where the password comes from if neither the address nor a file has one:
// everybody on the machine can read the arguments of a command.
const passwordEnv = "REDIS_PASSWORD"

const urlAdvice = "redis://host:port/db (rediss:// for TLS; a user goes before the host, and the password into " + passwordEnv + " of the environment)"

// fromURL parses redis:// and rediss:// as go-redis does. The addr parameters are further nodes
// of a cluster. Errors must not contain the password.
func fromURL(url string) (redis.UniversalClient, string, error) {
	if strings.Contains(url, "addr=") {
		cluster, err := redis.ParseClusterURL(url)
		if err != nil || slices.ContainsFunc(cluster.Addrs, func(addr string) bool { return strings.Contains(addr, "@") }) {
			return nil, "", badURL(url)
		}
		cluster.ContextTimeoutEnabled = true // as in package config
		cluster.Password = cmp.Or(cluster.Password, os.Getenv(passwordEnv))
		return redis.NewClusterClient(cluster), strings.Join(cluster.Addrs, ", "), nil
	}
	single, err := redis.ParseURL(url)
	if err != nil || strings.Contains(single.Addr, "@") {
		return nil, "", badURL(url)
	}
	single.ContextTimeoutEnabled = true
	single.Password = cmp.Or(single.Password, os.Getenv(passwordEnv))
	return redis.NewClient(single), single.Addr, nil
}

func badURL(url string) error {
	return fmt.Errorf("--redis %q is not a URL of Redis: want %s, or host:port", hideSecrets(url), urlAdvice)
}

// Ping finds out whether Redis answers. If ctx ends before that, the caller has to close the client.
func (r Redis) Ping(ctx context.Context) error {
	err := patient.Ask(ctx, func(ctx context.Context) error { return r.Client.Ping(ctx).Err() })
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.New("interrupted")
	default:
		return fmt.Errorf("cannot use Redis at %s: %w: %s", r.Addrs, err, r.advice(err))
	}
}

const rightsAdvice = "grant that to the user: docs/redis.md lists what each command needs, under ACL"

// names are how users of the commands name their Redis.
var names = refusal.Names{
	Addrs: "--redis, or redis.addrs of the configuration",
	TLS:   "redis.tls of the configuration (rediss:// in a URL)",
}

// advice says what to do if Redis does not answer as it should.
func (r Redis) advice(err error) string {
	switch {
	case refusal.LacksRight(err):
		return rightsAdvice
	case !refusal.LacksPassword(err):
		does := cmp.Or(names.Advice(err, r.overTLS),
			"start redis-server, or give the address of another (worker --embedded prints its own) to --redis or redis.addrs of the configuration")
		if r.addrsOfFile {
			does += r.Config.UnsetIn("redis.addrs")
		}
		return does
	case r.passwordOfFile:
		return "correct redis.username and redis.password in the configuration" + r.Config.UnsetIn("redis.username", "redis.password")
	}
	return "set " + passwordEnv + " in the environment to the password; its user, if there is one, goes before the host of a redis:// URL"
}
