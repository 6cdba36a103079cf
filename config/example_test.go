package config_test

import (
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/jobthrottle/jobthrottle/config"
)

// Keys that the file does not have keep their defaults.
func ExampleLoad() {
	dir, err := os.MkdirTemp("", "config")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(path, []byte(`
limits:
  mail: { rate: 5/1s }
jobs:
  "mail:": { limits: [mail] }
`), 0o600); err != nil {
		log.Fatal(err)
	}

	cfg, err := config.Load(path)
	if err != nil {
		log.Fatal(err)
	}
	rate, err := cfg.Limits["mail"].ThrottleRate()
	fmt.Println("mail:", rate, err)
	fmt.Println("Redis:", cfg.Redis.Addrs)
	fmt.Println("slots:", cfg.Pools[0].Concurrency)
	// Output:
	// mail: 5/1s <nil>
	// Redis: [127.0.0.1:6379]
	// slots: 20
}

// A mistake is an error that says where it is and what would be right.
func ExampleParse() {
	_, err := config.Parse("config.yaml", []byte(`limits:
  mail: { rate: 5 per second }
jobs:
  "mail:": { limits: [mail] }
`))
	fmt.Println(err)
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		fmt.Println(wrong.Key, "in line", wrong.Line)
	}
	// Output:
	// config.yaml:2:17: limits.mail.rate: invalid rate "5 per second": want PERMITS/INTERVAL, such as 100/1s
	// limits.mail.rate in line 2
}
