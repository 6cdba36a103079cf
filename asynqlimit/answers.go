package asynqlimit

import (
	"context"
	"sync"
	"time"

	"github.com/jobthrottle/jobthrottle/internal/line"
)

// answers tell Redis which called tasks of a queue have the answer of their limiter. From then on only the limiter counts
// these. Until then they count twice, and others call fewer.
type answers struct {
	lines *line.Lines
	queue string
	wake  chan struct{}

	mu sync.Mutex
	of []line.Answered
}

func newAnswers(lines *line.Lines, queue string) *answers {
	return &answers{lines: lines, queue: queue, wake: make(chan struct{}, 1)}
}

// answersAfter is how long an answer waits for others, so that one call tells them together. With 20 ms, 20 accounts with
// 1,000 jobs at 50/s each took 1 or 2 % longer; with 5 ms no difference can be measured.
const answersAfter = 5 * time.Millisecond

func (s *answers) add(task line.Answered) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of = append(s.of, task)
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run tells until ctx ends, and then once more.
func (s *answers) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-s.wake:
			select {
			case <-ctx.Done():
			case <-time.After(answersAfter):
			}
			s.tell(ctx)
		}
	}
	s.tell(ctx)
}

// tell tells what it knows. If that fails, these tasks count for a little longer.
func (s *answers) tell(ctx context.Context) {
	s.mu.Lock()
	tasks := s.of
	s.of = nil
	s.mu.Unlock()
	if len(tasks) == 0 {
		return
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), line.AskingCounts)
	defer cancel()
	_ = s.lines.NoteAnswers(within, s.queue, tasks)
}
