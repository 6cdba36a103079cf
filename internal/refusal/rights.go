package refusal

import (
	"strings"

	"github.com/redis/go-redis/v9"
)

// LacksRight reports whether Redis refused something because its user lacks a right. For commands in scripts, Redis 7.0
// says so only in words, and asynq passes on only the words.
func LacksRight(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "NOPERM") || strings.Contains(text, "The user executing the script can't ") || strings.Contains(text, "EXECABORT")
}

// LacksPassword reports whether Redis refuses everything, because the user or the password is wrong, or none was given.
func LacksPassword(err error) bool {
	return redis.HasErrorPrefix(err, "NOAUTH") || redis.HasErrorPrefix(err, "WRONGPASS")
}
