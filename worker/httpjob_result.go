package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/jobthrottle/jobthrottle/internal/refusal"
	"github.com/jobthrottle/jobthrottle/internal/secrets"
)

const (
	maxResultBody   = 64 << 10
	maxResultHeader = 64 << 10
	maxErrorBody    = 1 << 10

	// A connection is kept for the next job if the rest of the answer is short and comes soon.
	// Otherwise it is cheaper to close it.
	maxDrain     = 256 << 10
	drainTimeout = time.Second
	// refusedTimeout is how long a job that the API refuses waits for the rest of the answer: its limits pause only after it.
	refusedTimeout = 50 * time.Millisecond

	storeTimeout    = 25 * time.Second // asynq's lease lasts up to 30 s, and it ends an attempt after that
	storeAgainAfter = 100 * time.Millisecond
	storeAgainMost  = 2 * time.Second
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

// errorBody is the part of an answer that its error quotes, as far as it comes, without what looks like a secret. What is read
// is longer than what is quoted: half a secret would not be recognized.
func errorBody(body io.Reader, hide *secrets.Hider) string {
	if switched(body) {
		return ""
	}
	b, _ := io.ReadAll(io.LimitReader(body, 4*maxErrorBody)) // what came before an error is what there is
	text := strings.TrimSpace(hide.Text(strings.ToValidUTF8(string(b), "\uFFFD")))
	if len(text) > maxErrorBody {
		return string(wholeRunes([]byte(text[:maxErrorBody]))) + "..."
	}
	return text
}

// switched reports whether the body is the connection itself, after a switch of protocols: no context ends a read of it.
func switched(body io.Reader) bool {
	_, ok := body.(io.Writer)
	return ok
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

// store makes r the task's result. If Redis is away for some seconds, it tries again until ctx ends:
// an error makes asynq run the task again, which sends the request again. Tasks must tolerate that,
// but it should be rare. To lose a result silently would be worse.
func (r *HTTPResult) store(ctx context.Context, task *asynq.Task) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("%s: encode the result: %w", HTTPTaskType, err)
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	for again := storeAgainAfter; ; again = min(2*again, storeAgainMost) {
		_, err := task.ResultWriter().Write(b)
		if err == nil {
			return nil
		}
		if refusal.Passes(err) {
			select {
			case <-ctx.Done():
			case <-time.After(again):
				continue
			}
		}
		return fmt.Errorf("%s: the API answered %d, but the result could not be stored: %w", HTTPTaskType, r.Status, err)
	}
}

// drain makes a connection ready for the next request if little is left to read, and closes the
// body.
func drain(body io.ReadCloser) {
	if !switched(body) {
		_, _ = io.CopyN(io.Discard, body, maxDrain) // an error only ends the connection
	}
	body.Close()
}
