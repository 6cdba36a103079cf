package report

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// Machine is what the figures depend on, as far as Go knows it.
func Machine() []Fact {
	facts := []Fact{
		{"CPU", fmt.Sprintf("%s, %d cores", cpuModel(), runtime.NumCPU())},
		{"Go", fmt.Sprintf("%s %s/%s", strings.TrimPrefix(runtime.Version(), "go"), runtime.GOOS, runtime.GOARCH)},
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return facts
	}
	names := map[string]string{
		"github.com/hibiken/asynq":           "asynq",
		"github.com/redis/go-redis/v9":       "go-redis",
		"github.com/go-redis/redis_rate/v10": "redis_rate",
	}
	for _, dep := range info.Deps {
		if name, ok := names[dep.Path]; ok {
			facts = append(facts, Fact{name, strings.TrimPrefix(dep.Version, "v")})
		}
	}
	return facts
}

// Java is the version of the java command, or "".
func Java() string {
	said, err := exec.Command("java", "-version").CombinedOutput()
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(said), "\n")
	return strings.TrimSpace(first)
}

// cpuModel is the name that Linux gives the processor. Other systems have no file that says it.
func cpuModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return "unknown model"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown model"
}
