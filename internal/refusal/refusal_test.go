package refusal_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/internal/refusal"
)

// reply is an error reply of Redis.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// inScript is how Redis 6.2 answers if a script was refused a command.
const inScript = "ERR Error running script (call to f_7e0c3a9b): @user_script:6: @user_script: 6: "

func TestPasses(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{reply("LOADING Redis is loading the dataset in memory"), true},
		{reply("READONLY You can't write against a read only replica."), true},
		{reply("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), true},
		{reply("CLUSTERDOWN The cluster is down"), true},
		{reply("TRYAGAIN Multiple keys request during rehashing of slot"), true},
		{reply("MOVED 3999 127.0.0.1:6381"), true},
		{reply("ASK 3999 127.0.0.1:6381"), true},
		{reply("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."), true},
		{reply("NOREPLICAS Not enough good replicas to write."), true},
		{reply("NOSCRIPT No matching script."), true},
		{reply("ERR max number of clients reached"), true},
		{reply("OOM command not allowed when used memory > 'maxmemory'."), true},
		{reply("OOM command not allowed when used memory > 'maxmemory'. script: 7e0c3a9b, on @user_script:6."), true},
		{reply(inScript + "-OOM command not allowed when used memory > 'maxmemory'. "), true},
		{reply("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."), true},
		{reply(inScript + "-MISCONF Errors writing to the AOF file: No space left on device"), true},
		{reply(inScript + "-READONLY You can't write against a read only replica. "), true},
		{fmt.Errorf("sadd failed: %w", reply(inScript+"-NOREPLICAS Not enough good replicas to write.")), true},
		{io.ErrUnexpectedEOF, true},

		{reply("WRONGTYPE Operation against a key holding the wrong kind of value"), false},
		{reply(inScript + "WRONGTYPE Operation against a key holding the wrong kind of value"), false},
		{reply("NOPERM this user has no permissions to run the 'lpush' command"), false},
		{reply(inScript + "The user executing the script can't run this command or subcommand"), false},
		{reply("NOAUTH Authentication required."), false},
		{reply("WRONGPASS invalid username-password pair or user is disabled."), false},
		{reply("ERR unknown command 'evalsha'"), false},
		{reply("ERR string exceeds maximum allowed size (proto-max-bulk-len)"), false},
		{reply("ERR wrong number of arguments, perhaps OOM or READONLY "), false},
		{fmt.Errorf("write: %w", redis.ErrClosed), false},
		{errors.Join(reply("EXECABORT Transaction discarded because of previous errors.")), false},
	} {
		if got := refusal.Passes(tt.err); got != tt.want {
			t.Errorf("%v: passes %v, want %v", tt.err, got, tt.want)
		}
	}
}
