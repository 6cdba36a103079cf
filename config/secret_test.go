package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestNoErrorQuotesSecrets: whatever is wrong around a password or a token, and
// whatever it begins with, no error quotes it.
func TestNoErrorQuotesSecrets(t *testing.T) {
	const secret = "hunter2-s3cret"
	t.Setenv("SECRET", secret)
	for _, begin := range []string{"", "*", "&", "!", "!!", "%", "@", "`", "|", ">", "'", `"`, "[", "{", "- ", "? ", ": ", "#", "<<: *", "${", "\\", "\t"} {
		for _, section := range []string{
			"redis: { password: %s }", "redis: { password: %s, db: x }", "redis: { sentinel_password: %s }", "admin: { token: %s }",
			"redis:\n  password: %s\n  db: x\n", "admin:\n  token: %s\n  adr: x\n", "redis:\n  password:\n    %s\n", "admin: { token: { a: %s } }", "admin: { token: [%s] }",
		} {
			if _, err := Parse("config.yaml", []byte(fmt.Sprintf(section, begin+secret))); err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%q: %v", fmt.Sprintf(section, begin+secret), err)
			}
		}
	}
	for _, addr := range []string{
		"redis://:" + secret + "@host:6379", "redis://u:" + secret + "@host", "u:" + secret + "@host:6379", secret + "@host:6379", "rediss://:" + secret,
		"host:6379?password=" + secret, "redis://:${SECRET}@host:6379", "${SECRET}@host:6379", "u:a@" + secret + "@host:6379", "//" + secret + "@host:1",
	} {
		for _, section := range []string{"redis: { addrs: [%q] }", "redis: { addrs: [\"a:1\", %q] }"} {
			_, err := Parse("config.yaml", []byte(fmt.Sprintf(section, addr)))
			if err == nil || strings.Contains(err.Error(), secret) || !strings.Contains(err.Error(), "redis.addrs[") {
				t.Errorf("addrs %q: %v", addr, err)
			}
		}
	}
}
