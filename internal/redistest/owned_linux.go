package redistest

import (
	"os/exec"
	"syscall"
)

// own lets the server end with the test's process, however that ends.
func own(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
