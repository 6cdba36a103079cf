package line

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// maxRefused is how many refused tasks of a limiter are remembered.
const maxRefused = 1000

// Refusal is what an API's answer "try later" means, given the answers before.
type Refusal struct {
	Times  int64 // how often this task was refused, including this time; 0 if that is unknown
	Others bool  // other tasks were refused since this one was last refused
}

// Refused notes that the API of a limiter has refused a task. The refusal counts for a while.
func (l *Lines) Refused(ctx context.Context, limiter, queue, id string, counts time.Duration) (Refusal, error) {
	key := "{" + limiter + "}:refused"
	if strings.Contains(limiter, "{") {
		key = limiter + ":refused"
	}
	reply, err := l.refused.Run(ctx, l.rdb, []string{key}, url.QueryEscape(queue)+":"+id, counts.Milliseconds(), maxRefused).Int64Slice()
	if err != nil {
		return Refusal{}, err
	}
	if len(reply) != 2 {
		return Refusal{}, fmt.Errorf("refused.lua: %d values where 2 were expected", len(reply))
	}
	return Refusal{Times: reply[0], Others: reply[1] == 1}, nil
}
