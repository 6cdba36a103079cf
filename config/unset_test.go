package config

import (
	"strings"
	"testing"
)

// TestUnsetVariables: an error about a value that refers to a variable nobody has set names the
// variable. One that is set, and empty, is not named.
func TestUnsetVariables(t *testing.T) {
	t.Setenv("SET_AND_EMPTY", "")
	for text, want := range map[string]string{
		"redis: {addrs: [\"${NOT_SET}\"]}\n":                                                `1:17: redis.addrs[0]: invalid address "": want HOST:PORT, such as 127.0.0.1:6379 (${NOT_SET} is not set in the environment)`,
		"redis: {addrs: [\"a:1\", \"${NOT_SET}:${NOR_THIS}\"], password: \"${NEITHER}\"}\n": `1:24: redis.addrs[1]: invalid address ":": want HOST:PORT, such as 127.0.0.1:6379 (${NOT_SET} and ${NOR_THIS} are not set in the environment)`,
		"redis: {addrs: [\"${SET_AND_EMPTY}\"]}\n":                                          `1:17: redis.addrs[0]: invalid address "": want HOST:PORT, such as 127.0.0.1:6379`,
		"redis: {addrs: [x], password: \"${NOT_SET}\"}\n":                                   `1:17: redis.addrs[0]: invalid address "x": want HOST:PORT, such as 127.0.0.1:6379`,
		"redis:\n  db: \"${NOT_SET}\"\n":                                                    `2:7: redis.db: invalid value "${NOT_SET}": want a whole number (${NOT_SET} is not set in the environment)`,
		"admin: {token: \" ${NOT_SET}\"}\n":                                                 `1:16: admin.token: invalid token: want one without control characters, and no blanks around it (${NOT_SET} is not set in the environment)`,
		"limits: {a: {rate: \"${NOT_SET}\"}}\njobs: {x: {limits: [a]}}\n":                   `1:20: limits.a.rate: missing: want PERMITS/INTERVAL, such as 100/1s (${NOT_SET} is not set in the environment)`,
	} {
		if _, err := Parse("config.yaml", []byte(text)); err == nil || err.Error() != "config.yaml:"+want {
			t.Errorf("%s\ngot  %v\nwant config.yaml:%s", text, err, want)
		}
	}
	cfg, err := Parse("config.yaml", []byte("redis: {username: \"${NOT_SET}\", password: \"${NOT_SET}${NOR_THIS}\"}\nadmin: {token: \"${SET_AND_EMPTY}\"}\n"))
	if err != nil || cfg.Redis.Password != "" {
		t.Fatalf("an empty password: %+v, %v", cfg, err)
	}
	for key, want := range map[string]string{
		"redis.username": " (${NOT_SET} is not set in the environment)",
		"redis.password": " (${NOT_SET} and ${NOR_THIS} are not set in the environment)",
		"redis":          " (${NOT_SET} and ${NOR_THIS} are not set in the environment)",
		"redis.pass":     "",
		"admin.token":    "",
	} {
		if got := cfg.UnsetIn(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if got := Default().UnsetIn("redis"); got != "" {
		t.Errorf("a Config that no file has: %q", strings.TrimSpace(got))
	}
}
