package redisson

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	project "github.com/jobthrottle/jobthrottle/interop/redisson"
)

// ErrNoJava says that java or mvn is not installed, so there is no Redisson to run.
var ErrNoJava = errors.New("redisson: java (17 or later) and mvn are needed")

// build returns the path of the program's jar. It makes the jar if the user's cache has none of
// these sources. Processes that build at the same time do not disturb each other: the jar
// appears only when it is complete.
func build(ctx context.Context) (string, error) {
	for _, tool := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%w: %w", ErrNoJava, err)
		}
	}
	state, err := sourceState()
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("redisson: where to keep the jar: %w", err)
	}
	cache = filepath.Join(cache, "jobthrottle")
	jar := filepath.Join(cache, "redisson-peer-"+state+".jar")
	if _, err := os.Stat(jar); err == nil {
		return jar, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("redisson: keep the jar: %w", err)
	}
	dir, err := os.MkdirTemp(cache, "build-")
	if err != nil {
		return "", fmt.Errorf("redisson: build the jar: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, project.Project); err != nil {
		return "", fmt.Errorf("redisson: build the jar: %w", err)
	}
	mvn := exec.CommandContext(ctx, "mvn", "--quiet", "--batch-mode", "package")
	mvn.Dir = dir
	if out, err := mvn.CombinedOutput(); err != nil {
		return "", fmt.Errorf("redisson: mvn package: %w\n%s", err, bytes.TrimSpace(out))
	}
	if err := os.Rename(filepath.Join(dir, "target", "peer.jar"), jar); err != nil {
		return "", fmt.Errorf("redisson: keep the jar: %w", err)
	}
	return jar, nil
}

// sourceState is a hash of the program's sources.
func sourceState() (string, error) {
	h := sha256.New()
	err := fs.WalkDir(project.Project, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := project.Project.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("redisson: read the sources: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}
