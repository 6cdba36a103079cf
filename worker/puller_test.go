package worker

import (
	"testing"

	"github.com/hibiken/asynq"
)

// TestWasPutOff: a handler's own error is no word of a limit, whatever it says.
func TestWasPutOff(t *testing.T) {
	api := &ThrottledError{Limiter: `odd "one", next`, RetryAfter: 90_000_000_000}
	tests := map[string]bool{
		api.Error(): true,
		(&ThrottledError{RetryAfter: retryFull}).Error():                      true,
		(&ThrottledError{Limiter: "api", Err: asynq.ErrTaskNotFound}).Error(): true,
		"throttled":                             false,
		"throttled by upstream":                 false,
		"throttled by limiter of the API":       false,
		`throttled by limiter "api"`:            false,
		"throttled, next try in about a minute": false,
		"POST: " + api.Error():                  false,
		(&ThrottledError{Err: &BlockedError{Reason: NoHandler, Err: asynq.ErrHandlerNotFound}}).Error(): false,
	}
	for text, want := range tests {
		if got := wasPutOff(&asynq.TaskInfo{LastErr: text}); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
