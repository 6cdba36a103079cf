package redisserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Usage is what the server has done since it started.
type Usage struct {
	CPU         time.Duration // used by the whole process, in user and system mode
	ScriptCalls int64         // EVAL and EVALSHA, whoever sent them
}

// Sub returns what the server did between an earlier usage and u.
func (u Usage) Sub(earlier Usage) Usage {
	return Usage{CPU: u.CPU - earlier.CPU, ScriptCalls: u.ScriptCalls - earlier.ScriptCalls}
}

// Usage asks the server itself, so that every peer is measured in the same way.
func (s *Server) Usage(ctx context.Context) (Usage, error) {
	info, err := s.info(ctx, "cpu", "commandstats")
	if err != nil {
		return Usage{}, err
	}
	var u Usage
	for name, value := range info {
		switch {
		case name == "used_cpu_sys" || name == "used_cpu_user":
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return Usage{}, fmt.Errorf("INFO cpu: %s: %w", name, err)
			}
			u.CPU += time.Duration(seconds * float64(time.Second))
		case strings.HasPrefix(name, "cmdstat_eval"):
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, err := strconv.ParseInt(calls, 10, 64)
			if err != nil {
				return Usage{}, fmt.Errorf("INFO commandstats: %s: %w", name, err)
			}
			u.ScriptCalls += n
		}
	}
	return u, nil
}

// Memory is what the server stores at one time.
type Memory struct {
	Used    int64 // bytes
	Keys    int64
	Lasting int64 // keys that do not expire
}

// Memory asks the server itself.
func (s *Server) Memory(ctx context.Context) (m Memory, err error) {
	info, err := s.info(ctx, "memory", "keyspace")
	if err != nil {
		return m, err
	}
	if m.Used, err = strconv.ParseInt(info["used_memory"], 10, 64); err != nil {
		return m, fmt.Errorf("INFO memory: used_memory: %w", err)
	}
	if keyspace, ok := info["db0"]; ok { // an empty server has none
		var expiring int64
		if _, err := fmt.Sscanf(keyspace, "keys=%d,expires=%d", &m.Keys, &expiring); err != nil {
			return m, fmt.Errorf("INFO keyspace: %q: %w", keyspace, err)
		}
		m.Lasting = m.Keys - expiring
	}
	return m, nil
}

// Version is the version of the server.
func (s *Server) Version(ctx context.Context) (string, error) {
	info, err := s.info(ctx, "server")
	return info["redis_version"], err
}

func (s *Server) info(ctx context.Context, sections ...string) (map[string]string, error) {
	fields := map[string]string{}
	for _, section := range sections { // one at a time: Redis 6 accepts only one
		text, err := s.admin.Info(ctx, section).Result()
		if err != nil {
			return nil, fmt.Errorf("INFO %s: %w", section, err)
		}
		for line := range strings.Lines(text) {
			if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
				fields[name] = value
			}
		}
	}
	return fields, nil
}

// KeyBytes is how much of the server's memory all keys together use.
func (s *Server) KeyBytes(ctx context.Context) (int64, error) {
	keys, err := s.admin.Keys(ctx, "*").Result()
	if err != nil {
		return 0, err
	}
	var sum int64
	for _, key := range keys {
		n, err := s.admin.MemoryUsage(ctx, key, 0).Result() // 0: measure every element, do not estimate
		if errors.Is(err, redis.Nil) {
			continue // expired meanwhile
		}
		if err != nil {
			return 0, fmt.Errorf("MEMORY USAGE: %w", err)
		}
		sum += n
	}
	return sum, nil
}
