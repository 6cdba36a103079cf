package producer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/jobthrottle/jobthrottle/producer"
)

func ExampleProducer_Enqueue() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	p := producer.New(rdb)
	job := producer.Job{
		Type:    "invoice:send",
		Payload: []byte(`{"invoice":4711}`),
		ID:      "invoice-4711",
		Timeout: 30 * time.Second,
	}
	for range 2 {
		info, err := p.Enqueue(context.Background(), job)
		switch {
		case producer.AlreadyThere(err):
			fmt.Println("already there")
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println("enqueued", info.ID, "into", info.Queue)
		}
	}
	// Output:
	// enqueued invoice-4711 into default
	// already there
}

func ExampleProducer_Stream() {
	server, err := miniredis.Run() // stands for your Redis
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	file := strings.NewReader(`{"type":"email:send","payload":{"to":"a"},"id":"mail-1"}
{"type":"email:send","payload":{"to":"b"},"timeout":"10ms"}
{"type":"email:send","payload":{"to":"a"},"id":"mail-1"}
`)
	stream := producer.New(rdb).Stream(context.Background(), producer.StreamEvents{
		Done:   func(r producer.Result) { fmt.Println("line", r.Line, "already there:", r.Err != nil) },
		Outage: func(err error) { log.Println("waiting for Redis:", err) },
	})
	var bad []producer.Line
	for in := producer.NewReader(file); ; {
		line, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		if line.Err != nil {
			bad = append(bad, line)
			continue
		}
		if err := stream.Add(line.Number, line.Job); err != nil {
			log.Fatal(err)
		}
	}
	if err := stream.Close(); err != nil {
		log.Fatal(err)
	}
	for _, line := range bad {
		fmt.Printf("line %d: %v\n", line.Number, line.Err)
	}
	// Output:
	// line 1 already there: false
	// line 3 already there: true
	// line 2: timeout: 10ms is below 1s; asynq counts whole seconds, give at least 1s or leave it out
}

// A job line is a JSON object. A mistake is an error that says what would be right.
func ExampleParseJob() {
	job, err := producer.ParseJob([]byte(`{"type":"email:send","payload":{"to":"a"},"max_retry":0,"timeout":"30s"}`))
	fmt.Println(job.Type, string(job.Payload), job.MaxRetry == producer.None, job.Timeout, err)

	_, err = producer.ParseJob([]byte(`{"type":"email:send","timeout":30}`))
	fmt.Println(err)
	fmt.Println(errors.Is(err, producer.ErrInvalidJob))
	// Output:
	// email:send {"to":"a"} true 30s <nil>
	// timeout: 30 is not a duration such as "30s", "5m" or "1h"
	// true
}

// A Reader goes on after a bad line, and numbers lines as an editor does.
func ExampleReader() {
	file := strings.NewReader(`{"type":"email:send","payload":{"to":"a"}}

{"typ":"email:send"}
{"type":"email:send","payload":{"to":"b"}}
`)
	lines := producer.NewReader(file)
	for {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			log.Fatal(err)
		}
		if line.Err != nil {
			fmt.Println(line.Number, "is bad")
			continue
		}
		fmt.Println(line.Number, line.Job.Type)
	}
	// Output:
	// 1 email:send
	// 3 is bad
	// 4 email:send
}
