package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/config"
)

// dialTimeout bounds how long an address that does not answer is tried.
const dialTimeout = 5 * time.Second

// Redis is the Redis that a command's flags name.
type Redis struct {
	Client redis.UniversalClient // the command's to close
	Addrs  string                // for messages
	Config *config.Config        // the file that was read; nil if none was
}

// OpenRedis returns the Redis that addr names, the value of --redis, else the one
// in the configuration file at path, which defaults to config.yaml if there is
// one. It makes no connection. An error is a *UsageError.
func OpenRedis(path, addr string) (Redis, error) {
	r, err := openRedis(path, addr)
	if err != nil {
		return Redis{}, &UsageError{Err: err}
	}
	return r, nil
}

func openRedis(path, addr string) (r Redis, err error) {
	if strings.Contains(addr, "://") {
		r.Client, r.Addrs, err = fromURL(addr)
		return r, err
	}
	cfg := config.Default()
	if _, err := os.Stat("config.yaml"); path == "" && err == nil {
		path = "config.yaml"
	}
	if path != "" {
		if cfg, err = config.Load(path); err != nil {
			return r, err
		}
		r.Config = cfg
	}
	if addr != "" {
		cfg.Redis.Addrs, cfg.Redis.SentinelMaster = strings.Split(addr, ","), ""
		for _, one := range cfg.Redis.Addrs {
			if _, port, err := net.SplitHostPort(one); err != nil || port == "" {
				return r, fmt.Errorf("--redis %q is not an address: want host:port, such as 127.0.0.1:6379, or a redis:// URL", addr)
			}
		}
	}
	r.Addrs = strings.Join(cfg.Redis.Addrs, ", ")
	r.Client, err = cfg.Redis.NewClient()
	return r, err
}

// fromURL reads redis:// and rediss:// as go-redis does; further nodes of a
// cluster are its addr parameters. The password must not get into errors.
func fromURL(url string) (redis.UniversalClient, string, error) {
	if strings.Contains(url, "addr=") {
		cluster, err := redis.ParseClusterURL(url)
		if err != nil {
			return nil, "", badURL(url)
		}
		return redis.NewClusterClient(cluster), strings.Join(cluster.Addrs, ", "), nil
	}
	single, err := redis.ParseURL(url)
	if err != nil {
		return nil, "", badURL(url)
	}
	return redis.NewClient(single), single.Addr, nil
}

func badURL(url string) error {
	if _, host, secret := strings.Cut(url, "@"); secret {
		url = "...@" + host
	}
	return fmt.Errorf("--redis %q is not a URL of Redis: want redis://user:password@host:port/db, rediss:// for TLS, or host:port", url)
}

// Ping finds out whether Redis is there.
func (r Redis) Ping(ctx context.Context) error {
	pingCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	err := r.Client.Ping(pingCtx).Err()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.New("interrupted")
	default:
		return fmt.Errorf("cannot use Redis at %s: %w: start redis-server, or give the address of another "+
			"(worker --embedded prints its own) to --redis or redis.addrs of the configuration", r.Addrs, err)
	}
}
