//go:build !unix

package redisserver

import "os/exec"

func detach(*exec.Cmd) {}
