package main

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/jobthrottle/jobthrottle/internal/plain"
)

const (
	// completionTime is how long a shell waits for names at most.
	completionTime = 2 * time.Second
	// maxCompletions is how many names a shell gets at most.
	maxCompletions = 200
)

// completeNames completes the first argument with names of limiters in Redis.
func completeNames(opts *options) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		s, err := open(ctx, opts, io.Discard)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var names []string
		for l, err := range s.fleet.Limiters(ctx, literal.Replace(begun)+"*") {
			if err != nil {
				break
			}
			if plain.Text(l.Name) != l.Name {
				continue // a shell would print it unescaped
			}
			if names = append(names, l.Name); len(names) == maxCompletions {
				break
			}
		}
		_ = s.close() // a shell does not show an error
		slices.Sort(names)
		return slices.Compact(names), cobra.ShellCompDirectiveNoFileComp
	}
}

// literal escapes a text so that, as a pattern, it matches only itself.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)
