package jobview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// MaxBlocked is how many kinds of jobs that cannot run an Overview has at most.
const MaxBlocked = 50

// BlockedOverview is the jobs of a type that cannot run at present.
type BlockedOverview struct {
	Reason BlockReason `json:"reason"`
	Type   string      `json:"type"`
	Jobs   int64       `json:"jobs"`
}

// blocked reads which jobs of those queues cannot run, and the lines of jobs that wait for a
// slot of a limit in flight or for max_in_flight. If there are none of both, it is one round
// trip.
func (i *Inspector) blocked(ctx context.Context, queues []string) (all []BlockedOverview, waits []line.BlockedPart, err error) {
	found, err := i.lines.Blocked(ctx, queues, MaxLines)
	if err != nil {
		return nil, nil, fmt.Errorf("read which jobs cannot run: %w", err)
	}
	jobs := map[string]int64{}
	for _, b := range found {
		if line.IsWait(b.Name) {
			waits = append(waits, b)
		} else {
			jobs[b.Name] += b.Tasks
		}
	}
	for name, n := range jobs {
		reason, taskType, _ := strings.Cut(strings.TrimPrefix(name, "!"), ":")
		if n > 0 && line.IsBlocked(name) {
			all = append(all, BlockedOverview{BlockReason(reason), taskType, n})
		}
	}
	slices.SortFunc(all, func(a, b BlockedOverview) int {
		return cmp.Or(cmp.Compare(b.Jobs, a.Jobs), strings.Compare(a.Type, b.Type), cmp.Compare(a.Reason, b.Reason))
	})
	return all[:min(len(all), MaxBlocked)], waits, nil
}
