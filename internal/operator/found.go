package operator

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// found tells where asynq has a job that is not where it should be: in which of its lists and sets, how often or with which
// score, and what its hash says besides the message.
func (o *Operator) found(ctx context.Context, queue, id string) string {
	prefix := "asynq:{" + queue + "}:"
	lists, scores := map[string]*redis.IntSliceCmd{}, map[string]*redis.FloatCmd{}
	var fields *redis.MapStringStringCmd
	_, _ = o.Redis.Pipelined(ctx, func(p redis.Pipeliner) error { // what fails, or is not there, is not told
		for _, list := range []string{"pending", "active"} {
			lists[list] = p.LPosCount(ctx, prefix+list, id, 0, redis.LPosArgs{})
		}
		for _, set := range []string{"lease", "scheduled", "retry", "archived", "completed"} {
			scores[set] = p.ZScore(ctx, prefix+set, id)
		}
		fields = p.HGetAll(ctx, prefix+"t:"+id)
		return nil
	})
	var in []string
	for _, list := range slices.Sorted(maps.Keys(lists)) {
		if at := lists[list].Val(); len(at) > 0 {
			in = append(in, fmt.Sprintf("%s at %v", list, at))
		}
	}
	for _, set := range slices.Sorted(maps.Keys(scores)) {
		if scores[set].Err() == nil {
			in = append(in, fmt.Sprintf("%s for %.0f", set, scores[set].Val()))
		}
	}
	known := fields.Val()
	delete(known, "msg")
	delete(known, "result")
	return fmt.Sprintf("at %v it is in %s; %q", o.Now(), strings.Join(in, ", "), known)
}
