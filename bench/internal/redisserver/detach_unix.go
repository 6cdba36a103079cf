//go:build unix

package redisserver

import (
	"os/exec"
	"syscall"
)

// detach keeps Ctrl-C in a terminal from reaching the server before its users have ended.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
