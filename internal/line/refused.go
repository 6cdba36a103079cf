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

// Refusal is what an API's answer "try later" means, after those before.
type Refusal struct {
	Times  int64 // that this task was refused, with this one; 0 if that is unknown
	Others bool  // others were, since its last time
}

// Refused notes that the API which a limiter is for has refused a task. That
// counts for a while.
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
