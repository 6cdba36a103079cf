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

// OpenRedis returns a client of the Redis that addr names, the value of --redis,
// else of the one in the configuration file at path, which defaults to config.yaml
// if there is one, and its addresses for errors. It makes no connection. An error
// is a *UsageError.
func OpenRedis(path, addr string) (redis.UniversalClient, string, error) {
	rdb, addrs, err := openRedis(path, addr)
	if err != nil {
		return nil, "", &UsageError{Err: err}
	}
	return rdb, addrs, nil
}

func openRedis(path, addr string) (redis.UniversalClient, string, error) {
	if strings.Contains(addr, "://") {
		return fromURL(addr)
	}
	cfg := config.Default()
	if _, err := os.Stat("config.yaml"); path == "" && err == nil {
		path = "config.yaml"
	}
	if path != "" {
		var err error
		if cfg, err = config.Load(path); err != nil {
			return nil, "", err
		}
	}
	if addr != "" {
		cfg.Redis.Addrs, cfg.Redis.SentinelMaster = strings.Split(addr, ","), ""
		for _, one := range cfg.Redis.Addrs {
			if _, port, err := net.SplitHostPort(one); err != nil || port == "" {
				return nil, "", fmt.Errorf("--redis %q is not an address: want host:port, such as 127.0.0.1:6379, or a redis:// URL", addr)
			}
		}
	}
	rdb, err := cfg.Redis.NewClient()
	return rdb, strings.Join(cfg.Redis.Addrs, ", "), err
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

// PingRedis finds out whether Redis is there.
func PingRedis(ctx context.Context, rdb redis.UniversalClient, addrs string) error {
	pingCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	err := rdb.Ping(pingCtx).Err()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errors.New("interrupted")
	default:
		return fmt.Errorf("cannot use Redis at %s: %w: start redis-server, or give the address of another "+
			"(worker --embedded prints its own) to --redis or redis.addrs of the configuration", addrs, err)
	}
}
