//go:build unix

package site

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// Programs are the files of the built commands.
type Programs struct {
	Worker  string
	Enqueue string
	Shifted string // a worker whose wall clock can be shifted; "" unless BuildShifted made it
}

// module is the module of the commands.
const module = "github.com/jobthrottle/jobthrottle"

// Build builds the commands into dir.
func Build(ctx context.Context, dir string) (Programs, error) {
	p := Programs{Worker: filepath.Join(dir, "worker"), Enqueue: filepath.Join(dir, "enqueue")}
	return p, build(ctx, "-o", dir, module+"/cmd/worker", module+"/cmd/enqueue")
}

func build(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build %s: %w\n%s", strings.Join(args, " "), err, said)
	}
	return nil
}

// enqueue adds the jobs of a file.
func (p Programs) enqueue(ctx context.Context, config, file string) error {
	if said, err := exec.CommandContext(ctx, p.Enqueue, "--config", config, "--file", file).CombinedOutput(); err != nil {
		return fmt.Errorf("enqueue: %w\n%s", err, said)
	}
	return nil
}
