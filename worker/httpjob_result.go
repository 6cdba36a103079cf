package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"
)

const (
	maxResultBody   = 64 << 10
	maxResultHeader = 64 << 10

	// A connection is kept for the next job if the rest of the answer is short and comes soon.
	// Otherwise it is cheaper to close it.
	maxDrain     = 256 << 10
	drainTimeout = time.Second
)

// HTTPResult is the result of an [HTTPTaskType] task, as JSON: the API's answer. asynq keeps it
// for the task's retention.
type HTTPResult struct {
	Status int `json:"status"`
	// Headers are those of the answer, except cookies.
	Headers http.Header `json:"headers"`
	// Body is the first 64 KiB of the answer, if they are UTF-8. Otherwise they are in
	// BodyBytes, which JSON has in base64.
	Body      string `json:"body,omitempty"`
	BodyBytes []byte `json:"body_base64,omitempty"`
	// Truncated says that the answer was longer.
	Truncated bool `json:"truncated,omitempty"`
}

// readResult reads the part of the answer that is kept.
func readResult(resp *http.Response) (*HTTPResult, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxResultBody+1))
	if err != nil {
		return nil, err
	}
	r := &HTTPResult{Status: resp.StatusCode, Headers: resp.Header.Clone()}
	r.Headers.Del("Set-Cookie")
	if r.Truncated = len(body) > maxResultBody; r.Truncated {
		body = body[:maxResultBody]
	}
	text := body
	if r.Truncated {
		text = wholeRunes(body)
	}
	if utf8.Valid(text) {
		r.Body = string(text)
	} else {
		r.BodyBytes = body
	}
	return r, nil
}

// wholeRunes removes an incomplete rune from the end.
func wholeRunes(b []byte) []byte {
	for cut := 1; cut < utf8.UTFMax && cut <= len(b); cut++ {
		if tail := b[len(b)-cut:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return b[:len(b)-cut]
			}
			break
		}
	}
	return b
}

// store makes r the task's result. An error makes asynq run the task again, which tasks must
// tolerate anyway. To lose a result silently would be worse.
func (r *HTTPResult) store(task *asynq.Task) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("%s: encode the result: %w", HTTPTaskType, err)
	}
	if _, err := task.ResultWriter().Write(b); err != nil {
		return fmt.Errorf("%s: the API answered %d, but the result could not be stored: %w", HTTPTaskType, r.Status, err)
	}
	return nil
}

// drain makes a connection ready for the next request if little is left to read, and closes the
// body.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, maxDrain) // an error only ends the connection
	body.Close()
}
