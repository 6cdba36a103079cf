package cli

import (
	"regexp"
	"strings"
)

var (
	// userinfo is the text between the scheme of a URL and its host. A password may contain an
	// @, or a space.
	userinfo = regexp.MustCompile(`://.*@`)
	redisURL = regexp.MustCompile(`(rediss?://)[^\s"]*`)
	hostOnly = regexp.MustCompile(`^(\.\.\.@)?[\w.\-\[\]]+(:[\w.:\]]+)?(/\w*)?[.,:;)]?$|^$`)
)

// hideSecrets removes the passwords from the addresses of Redis in a message.
func hideSecrets(message string) string {
	message = userinfo.ReplaceAllString(message, "://...@")
	return redisURL.ReplaceAllStringFunc(message, func(url string) string {
		scheme, rest, _ := strings.Cut(url, "://")
		if hostOnly.MatchString(rest) {
			return url
		}
		return scheme + "://..."
	})
}
