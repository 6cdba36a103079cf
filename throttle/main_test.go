package throttle

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/jobthrottle/jobthrottle/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.WaitMostly()
	goleak.VerifyTestMain(m)
}
