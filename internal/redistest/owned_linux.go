package redistest

import (
	"os/exec"
	"syscall"
)

// own makes the server end with the test's process, however that ends.
func own(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
