package config

import (
	"errors"
	"fmt"
	"testing"
)

// unquotedForms are values that YAML reads as something else than a string, and as
// another text than is written.
var unquotedForms = []string{
	"0123", "0012345", "12_34", "0x1F", "0o17", "0b11", "010", "+5", "-5", "01", "1.10", "1e3", "2E1", ".inf", "-.inf", ".NaN",
	"true", "True", "FALSE", "18446744073709551616", "1.7976931348623157e+309", "2026-01-01",
}

// TestStringsAreAsWritten: what stands for a string means its own text, with quotes
// or without, wherever it stands.
func TestStringsAreAsWritten(t *testing.T) {
	for _, form := range unquotedForms {
		for _, written := range []string{form, `"` + form + `"`, `'` + form + `'`} {
			for name, tt := range map[string]struct {
				text string
				got  func(*Config) string
			}{
				"password": {"redis: { password: %s }", func(c *Config) string { return c.Redis.Password }},
				"block":    {"redis:\n  password: %s # the password\n", func(c *Config) string { return c.Redis.Password }},
				"token":    {"admin: { token: %s }", func(c *Config) string { return c.Admin.Token }},
				"pool":     {"pools: [{ name: %s, concurrency: 1 }]", func(c *Config) string { return c.Pools[0].Name }},
				"queue":    {"pools: [{ name: a, concurrency: 1, queues: { %s: 1 } }]", func(c *Config) string { return onlyKey(c.Pools[0].Queues) }},
				"limit":    {"limits: { %[1]s: { rate: 1/1s } }\njobs: { x: { limits: [%[1]s] } }", func(c *Config) string { return onlyKey(c.Limits) }},
				"of a job": {"limits: { %[1]s: { rate: 1/1s } }\njobs: { x: { limits: [%[1]s], pause_on_429: [%[1]s] } }", func(c *Config) string { return c.Jobs["x"].Limits[0] }},
				"task":     {"jobs: { %s: {} }", func(c *Config) string { return onlyKey(c.Jobs) }},
				"key mark": {"jobs: { ? %s : {} }", func(c *Config) string { return onlyKey(c.Jobs) }},
				"anchor":   {"redis: { password: &p %s, username: *p }", func(c *Config) string { return c.Redis.Username }},
				"its own":  {"redis: { password: &p %s, username: *p }", func(c *Config) string { return c.Redis.Password }},
				"merged":   {"redis: { <<: { password: %s } }", func(c *Config) string { return c.Redis.Password }},
			} {
				cfg, err := Parse("config.yaml", []byte(fmt.Sprintf(tt.text, written)))
				if err != nil {
					t.Errorf("%s %s: %v", name, written, err)
				} else if got := tt.got(cfg); got != form {
					t.Errorf("%s %s: read as %q", name, written, got)
				}
			}
		}
	}
}

func onlyKey[V any](m map[string]V) string {
	for k := range m {
		return k
	}
	return ""
}

// TestStringsThatANumberIsWrittenFor: an error quotes what the file says, and a number of
// permits is the one that is written.
func TestStringsThatANumberIsWrittenFor(t *testing.T) {
	for text, want := range map[string]string{
		"redis: { addrs: [1.10] }":             `config.yaml:1:18: redis.addrs[0]: invalid address "1.10": want HOST:PORT, such as 127.0.0.1:6379`,
		"limits: { a: { rate: 010 } }":         `config.yaml:1:22: limits.a.rate: invalid rate "010": want PERMITS/INTERVAL, such as 100/1s`,
		"redis: { db: &n 7, tls_ca: *n }":      `config.yaml:1:28: redis.tls_ca: means nothing without tls: true`,
		"jobs: { x: { permits: 0x1F } }":       `config.yaml:1:23: jobs.x.permits: invalid permits "0x1F": want a whole number, payload.PATH or header.NAME`,
		"limits: { 7: { rate: x } }":           `config.yaml:1:22: limits.7.rate: invalid rate "x": want PERMITS/INTERVAL, such as 100/1s`,
		"redis: { password: [7] }":             `config.yaml:1:20: redis.password: invalid value: want a string; put a key or a value that has : or ${ in it between quotes`,
		"admin: { token: { 7: 8 } }":           `config.yaml:1:17: admin.token: invalid value: want a string; put a key or a value that has : or ${ in it between quotes`,
		"limits: { 010: { rate: 1/1s, 7: 8 }}": `config.yaml:1:30: limits.010.7: unknown key: want one of rate, in_flight, lease, type, key, rates, share, weights, default_weight, guard, smooth, window, offset, keep_alive, adapt, preset, dry_run`,
	} {
		if _, err := Parse("config.yaml", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
	cfg, err := Parse("config.yaml", []byte("limits: { a: { rate: 100/1s } }\njobs: { x: { limits: [a], permits: 010 } }"))
	if err != nil || cfg.Jobs["x"].Permits.Each != "010" {
		t.Errorf("permits: 010: %v, %v", cfg, err)
	}
}

// TestWholeNumbers: a number of something is written out in decimal, or refused.
func TestWholeNumbers(t *testing.T) {
	t.Setenv("N", "7")
	t.Setenv("HALF", "7.5")
	t.Setenv("OCTAL", "07")
	for _, tt := range []struct {
		written string
		want    int // 0: refused
		msg     string
	}{
		{"7", 7, ""}, {"+7", 7, ""}, {`"7"`, 7, ""}, {`"${N}"`, 7, ""}, {"1_000", 1000, ""},
		{"1.5", 0, `invalid value "1.5": want a whole number`},
		{"2.0", 0, `invalid value "2.0": want a whole number`},
		{"2e1", 0, `invalid value "2e1": want a whole number`},
		{`"1.5"`, 0, `invalid value "1.5": want a whole number`},
		{`"${HALF}"`, 0, `invalid value "${HALF}": want a whole number`},
		{".inf", 0, `invalid value ".inf": want a whole number`},
		{".nan", 0, `invalid value ".nan": want a whole number`},
		{"true", 0, `invalid value "true": want a whole number`},
		{`""`, 0, `invalid value "": want a whole number`},
		{"010", 0, `invalid value "010": want a whole number in decimal, without zeros before it`},
		{`"010"`, 0, `invalid value "010": want a whole number in decimal, without zeros before it`},
		{`"${OCTAL}"`, 0, `invalid value "${OCTAL}": want a whole number in decimal, without zeros before it`},
		{"0x1F", 0, `invalid value "0x1F": want a whole number in decimal, without zeros before it`},
		{"0o17", 0, `invalid value "0o17": want a whole number in decimal, without zeros before it`},
		{"9223372036854775808", 0, `invalid value "9223372036854775808": want a whole number`},
	} {
		for _, path := range []struct {
			text, at string
			got      func(*Config) int
		}{
			{"pools: [{ name: a, concurrency: %s }]", "1:33: pools[0].concurrency: ", func(c *Config) int { return c.Pools[0].Concurrency }},
			{"pools: [{ name: a, concurrency: 1, queues: { q: %s } }]", "1:49: pools[0].queues.q: ", func(c *Config) int { return c.Pools[0].Queues["q"] }},
			{"redis: { db: %s }", "1:14: redis.db: ", func(c *Config) int { return c.Redis.DB }},
			{"jobs: { x: { max_in_flight: %s } }", "1:29: jobs.x.max_in_flight: ", func(c *Config) int { return c.Jobs["x"].MaxInFlight }},
			{"redis: { db: &n %s }", "1:17: redis.db: ", func(c *Config) int { return c.Redis.DB }},
		} {
			text := fmt.Sprintf(path.text, tt.written)
			cfg, err := Parse("config.yaml", []byte(text))
			if _, typed := errors.AsType[*Error](err); err != nil && !typed {
				t.Errorf("%s: error %T", text, err)
			}
			switch want := "config.yaml:" + path.at + tt.msg; {
			case tt.want != 0 && err != nil:
				t.Errorf("%s: %v", text, err)
			case tt.want != 0 && path.got(cfg) != tt.want:
				t.Errorf("%s: read as %d", text, path.got(cfg))
			case tt.want == 0 && (err == nil || err.Error() != want):
				t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
			}
		}
	}
	// An alias is what its anchor has; a password is not shown.
	for text, want := range map[string]string{
		"redis: { password: &p 07, db: *p }":  `config.yaml:1:31: redis.db: invalid value "*p": want a whole number in decimal, without zeros before it`,
		"redis: { password: &p 1.5, db: *p }": `config.yaml:1:32: redis.db: invalid value "*p": want a whole number`,
	} {
		if _, err := Parse("config.yaml", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
	if cfg, err := Parse("config.yaml", []byte("redis: { password: &p 7, db: *p }")); err != nil || cfg.Redis.DB != 7 || cfg.Redis.Password != "7" {
		t.Errorf("an alias: %+v, %v", cfg, err)
	}
}
