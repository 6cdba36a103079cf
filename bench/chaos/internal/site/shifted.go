//go:build unix

package site

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A Go program reads the clock from the kernel's page itself. A library that is preloaded in
// front of libc, such as libfaketime, does not reach it. Linux' namespaces shift only clocks
// that count from the start of the machine. So a worker with a wrong wall clock is built with
// another time.Now: the toolchain's own, which adds what the environment says.
const (
	shiftEnv = "JOBTHROTTLE_CHAOS_CLOCK_SHIFT"
	readNow  = "\tsec, nsec, mono := runtimeNow()\n"
	shiftNow = readNow + "\tsec += clockShift\n"

	shiftFile = `package time

import "syscall"

var clockShift = func() int64 {
	text, _ := syscall.Getenv("` + shiftEnv + `")
	seconds, _ := atoi(text)
	return int64(seconds)
}()
`
)

// BuildShifted builds a worker whose wall clock can be shifted. Its monotonic clock and all
// timers stay right. It builds the standard library again, which takes a minute or two the
// first time.
func BuildShifted(ctx context.Context, dir string) (string, error) {
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOROOT: %w", err)
	}
	std := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	source, err := os.ReadFile(filepath.Join(std, "time.go"))
	if err != nil {
		return "", err
	}
	before, now, ok := strings.Cut(string(source), "\nfunc Now() Time {\n"+readNow)
	if !ok {
		return "", fmt.Errorf("%s: Now does not begin with %q: this Go is too new for the fault clock", std, readNow)
	}
	overlay := map[string]map[string]string{"Replace": {}}
	for name, text := range map[string]string{
		"time.go":        before + "\nfunc Now() Time {\n" + shiftNow + now,
		"clock_shift.go": shiftFile,
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		overlay["Replace"][filepath.Join(std, name)] = file
	}
	text, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "worker-shifted")
	return program, build(ctx, "-overlay", file, "-o", program, module+"/cmd/worker")
}
