// Package deploy_test checks what jobthrottle is deployed with by the schemas of the
// tools that read it, and starts a worker as each of them would. It also uses asynqmon
// beside a server with limits.
package deploy_test

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// repository is the root of the main module.
const repository = ".."

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(append([]string{repository}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
