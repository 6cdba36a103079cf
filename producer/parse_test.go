package producer_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jobthrottle/jobthrottle/producer"
)

func TestParseJob(t *testing.T) {
	for _, tt := range []struct {
		name string
		line string
		want producer.Job
	}{
		{"type only", `{"type":"a"}`, producer.Job{Type: "a"}},
		{"everything", `{"type":"http:request","payload":{"url":"x"},"id":"i","queue":"low","headers":{"k":"v"},"max_retry":3,` +
			`"timeout":"30s","process_in":"5s","unique_for":"1h","retention":"2h"}`,
			producer.Job{
				Type: "http:request", Payload: []byte(`{"url":"x"}`), ID: "i", Queue: "low", Headers: map[string]string{"k": "v"},
				MaxRetry: 3, Timeout: 30 * time.Second, ProcessIn: 5 * time.Second, UniqueFor: time.Hour, Retention: 2 * time.Hour,
			}},
		{"zero means zero", `{"type":"a","max_retry":0,"retention":"0s","process_in":"0s"}`,
			producer.Job{Type: "a", MaxRetry: producer.None, Retention: producer.None}},
		{"payload as written", ` { "type" : "a" , "payload" : { "b" : 1.0 } } `, producer.Job{Type: "a", Payload: []byte(`{ "b" : 1.0 }`)}},
		{"payload null", `{"type":"a","payload":null}`, producer.Job{Type: "a", Payload: []byte("null")}},
		{"the least timeout", `{"type":"a","timeout":"1s"}`, producer.Job{Type: "a", Timeout: time.Second}},
		{"carriage return", "{\"type\":\"a\"}\r", producer.Job{Type: "a"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := producer.ParseJob([]byte(tt.line))
			if err != nil || !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
}

func TestParseJobRefuses(t *testing.T) {
	for _, tt := range []struct {
		line  string
		field string
		says  string
	}{
		{``, "", "in the middle"},
		{`hello`, "", "is not JSON: invalid character"},
		{`[1]`, "", "is not a JSON object"},
		{`"a"`, "", "is not a JSON object"},
		{`null`, "", "is not a JSON object"},
		{strings.Repeat("1", 400), "", "is not a JSON object"},
		{`{"type":"a"}` + strings.Repeat("1", 400), "", "goes on after the job"},
		{`{"type":"a"`, "", "is not JSON"},
		{`{"type":"a",}`, "", "is not JSON"},
		{`{"type":"a"} {"type":"b"}`, "", "goes on after the job"},
		{`{"type":"a"}}`, "", "goes on after the job"},
		{"{\"type\":\"\xff\"}", "", "UTF-8"},
		{`{}`, "type", "is missing"},
		{`{"payload":{}}`, "type", "is missing"},
		{`{"type":""}`, "type", "is empty"},
		{`{"type":" "}`, "type", "is empty"},
		{`{"type":7}`, "type", "7 is not a string"},
		{`{"type":null}`, "type", "null is not a string"},
		{`{"type":"a","type":"b"}`, "type", "given twice"},
		{`{"Type":"a"}`, "Type", "is not a key of a job; the keys are type, payload"},
		{`{"type":"a","retries":1}`, "retries", "is not a key"},
		{`{"type":"a","id":""}`, "id", "is empty"},
		{`{"type":"a","queue":[]}`, "queue", "[] is not a string"},
		{`{"type":"a","headers":{"k":1}}`, "headers", "object of strings"},
		{`{"type":"a","headers":{"a":"b","tenant":null}}`, "headers", `the value of "tenant" is not a string`},
		{`{"type":"a","headers":null}`, "headers", "object of strings"},
		{`{"type":"a","headers":"k"}`, "headers", "object of strings"},
		{`{"type":"a","headers":{"jobthrottle-max-retry":"1"}}`, "headers", "reserved"},
		{`{"type":"a","max_retry":-1}`, "max_retry", "-1 is not a whole number from 0 on"},
		{`{"type":"a","max_retry":1.5}`, "max_retry", "whole number"},
		{`{"type":"a","max_retry":"3"}`, "max_retry", "whole number"},
		{`{"type":"a","max_retry":2147483648}`, "max_retry", "too many; at most 2147483647"},
		{`{"type":"a","max_retry":99999999999999999999}`, "max_retry", "whole number"},
		{`{"type":"a","timeout":"soon"}`, "timeout", `"soon" is not a duration such as "30s"`},
		{`{"type":"a","timeout":30}`, "timeout", "30 is not a duration"},
		{`{"type":"a","timeout":null}`, "timeout", "null is not a duration"},
		{`{"type":"a","timeout":"0s"}`, "timeout", "below 1s"},
		{`{"type":"a","timeout":"999ms"}`, "timeout", "999ms is below 1s"},
		{`{"type":"a","timeout":"-1s"}`, "timeout", "is not a duration"},
		{`{"type":"a","unique_for":"10ms"}`, "unique_for", "below 1s"},
		{`{"type":"a","process_in":"-5s"}`, "process_in", "is not a duration"},
		{`{"type":"a","retention":"100000000h"}`, "retention", "is not a duration"},
		{`{"type":"a","retention":"100000h"}`, "retention", "too long; give at most 10 years"},
		{`{"type":"a","` + strings.Repeat("k", 1000) + `":1}`, strings.Repeat("k", 64) + "...", "is not a key"},
		{`{"type":"` + strings.Repeat("a", producer.MaxLine) + `"}`, "", "is 1048587 bytes long, at most 1048576"},
	} {
		t.Run(fmt.Sprintf("%.40s", tt.line), func(t *testing.T) {
			_, err := producer.ParseJob([]byte(tt.line))
			jobErr, ok := errors.AsType[*producer.JobError](err)
			if !ok || !errors.Is(err, producer.ErrInvalidJob) {
				t.Fatalf("got %v, want a *JobError", err)
			}
			if jobErr.Field != tt.field || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("got %q about %q, want %q about %q", err, jobErr.Field, tt.says, tt.field)
			}
		})
	}
}

// TestParseJobQuotesNoHeader: whatever is wrong about headers, no message shows a value of one.
func TestParseJobQuotesNoHeader(t *testing.T) {
	const secret = "s3cret"
	for _, headers := range []string{
		`{"Authorization":["Bearer s3cret"]}`, `{"Authorization":"Bearer s3cret","n":1}`, `"Bearer s3cret"`, `["s3cret"]`,
		`{"Authorization":{"Bearer":"s3cret"}}`, `{"Authorization":"Bearer s3cret","jobthrottle-max-retry":"1"}`, `{"Authorization":"s3cret"]`,
		`{"Authorization":"s3cret`, `{"Authorization":"s3cret"},"headers":{}`,
	} {
		_, err := producer.ParseJob([]byte(`{"type":"a","headers":` + headers + `}`))
		if !errors.Is(err, producer.ErrInvalidJob) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", headers, err)
		}
	}
}

// FuzzParseJob checks that every line is either refused with a *JobError of a sane length or gives a job that is valid
// and does not share the line's memory.
func FuzzParseJob(f *testing.F) {
	for _, seed := range []string{
		`{"type":"a"}`,
		`{"type":"http:request","payload":{"url":"x"},"id":"i","queue":"q","max_retry":0,"timeout":"30s"}`,
		`{"type":"a","headers":{"k":"v"},"process_in":"5s","unique_for":"1h","retention":"0s"}`,
		`{"type":"a","id":"\ud800"}`, `{"type":"a"} x`, `{"type":`, `{"a":{"b":[1,null]}}`, "\xff", ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		job, err := producer.ParseJob(line)
		if err != nil {
			if _, ok := errors.AsType[*producer.JobError](err); !ok || len(err.Error()) > 400 {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		if err := job.Validate(); err != nil {
			t.Fatalf("accepted, but %v", err)
		}
		payload := string(job.Payload)
		clear(line)
		if string(job.Payload) != payload {
			t.Fatal("the payload changed with the line")
		}
	})
}
