package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/jobview"
	"github.com/jobthrottle/jobthrottle/internal/plain"
)

const (
	// maxShown is how many limits a page shows at most. If there are more, it shows those that
	// need attention, or that match what somebody searches for.
	maxShown = 48
	// maxTroubles is how many limits it lists as paused or broken at most.
	maxTroubles = 20
)

// chosen returns the limits to show, by name.
func chosen(limits []jobview.LimitOverview, find string) []jobview.LimitOverview {
	if find != "" {
		limits = slices.DeleteFunc(slices.Clone(limits), func(l jobview.LimitOverview) bool {
			return !strings.Contains(strings.ToLower(l.Name), strings.ToLower(find))
		})
	}
	if len(limits) <= maxShown {
		return limits
	}
	limits = slices.SortedStableFunc(slices.Values(limits), func(a, b jobview.LimitOverview) int {
		return cmp.Or(cmp.Compare(urgency(b), urgency(a)), cmp.Compare(b.Parked, a.Parked), strings.Compare(a.Name, b.Name))
	})[:maxShown]
	slices.SortFunc(limits, func(a, b jobview.LimitOverview) int { return strings.Compare(a.Name, b.Name) })
	return limits
}

// urgency is how much attention a limit needs.
func urgency(l jobview.LimitOverview) int {
	switch {
	case len(l.Broken) > 0:
		return 3
	case slices.ContainsFunc(l.Limiters, func(u jobview.LimiterOverview) bool { return u.Paused > 0 }):
		return 2
	case l.Parked > 0:
		return 1
	}
	return 0
}

// trouble is what keeps jobs of one limit, or of all, from running, in words.
type trouble struct {
	Name  string `json:"name"`
	Level string `json:"level"` // bad, or warn
	Words string `json:"words"`
}

// refusedFor is for how long the page tells that Redis refused a call. While jobs wait, it comes again sooner.
const refusedFor = 10 * time.Second

// troublesOf returns what keeps jobs with limits from running: that Redis refuses this worker's calls, then the broken limits,
// then the paused ones.
func troublesOf(o jobview.Overview, refused *jobview.Refused) []trouble {
	broken, paused := []trouble{}, []trouble{}
	if refused != nil && time.Since(refused.At) < refusedFor {
		broken = append(broken, trouble{"", "bad", plain.Text(fmt.Sprintf("Redis refuses what jobs with limits need; they wait and ask again: %v.", refused.Err))})
	}
	for _, l := range o.Limits {
		for _, err := range l.Broken {
			broken = append(broken, trouble{l.Name, "bad", plain.Text(fmt.Sprintf("A limit is broken: %v.", err))})
		}
		for _, u := range l.Limiters {
			if u.Paused <= 0 {
				continue
			}
			words := fmt.Sprintf("Limit %s is paused for another %v", u.Name, u.Paused.Round(time.Second))
			if u.Parked > 0 {
				words += fmt.Sprintf(", and %d of its jobs wait", u.Parked)
			}
			paused = append(paused, trouble{u.Name, "warn", plain.Text(words + ".")})
		}
	}
	all := append(broken, paused...)
	if more := len(all) - maxTroubles; more > 0 {
		all = append(all[:maxTroubles], trouble{"", "warn", fmt.Sprintf("%d more limits are paused or broken.", more)})
	}
	return all
}
