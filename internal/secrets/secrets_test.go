package secrets_test

import (
	"strings"
	"testing"

	"github.com/jobthrottle/jobthrottle/internal/secrets"
)

// TestHidden: no secret gets through, wherever it stands, and what stands beside it does.
func TestHidden(t *testing.T) {
	h := secrets.New([]string{"SSN", "tax-number"})
	for name, payload := range map[string]string{
		"header":                `{"headers": {"Authorization": "Bearer s3cr3t-s3cr3t", "X-Seen": "seen"}}`,
		"other headers":         `{"headers": {"X-Api-Key": "s3cr3t", "COOKIE": "a=s3cr3t", "Proxy-Authorization": "s3cr3t", "seen": "seen"}}`,
		"a struct of Go":        `{"headers": [{"Name": "X-Api-Key", "Value": "s3cr3t"}], "seen": "seen"}`,
		"list of headers":       `{"headers": [{"name": "authorization", "value": "s3cr3t"}, {"name": "seen", "value": "seen"}]}`,
		"multiple values":       `{"headers": {"authorization": ["s3cr3t", "s3cr3t"], "x": ["seen"]}}`,
		"object":                `{"credentials": {"user": "s3cr3t"}, "a": "seen"}`,
		"number":                `{"password": 53731337, "s": "seen", "not": "s3cr3t is not here"}`,
		"configured":            `{"ssn": "s3cr3t", "tax_number": "s3cr3t", "b": "seen"}`,
		"body":                  `{"body": "{\"client_secret\": \"s3cr3t\", \"n\": \"seen\"}"}`,
		"body in body":          `{"body": "{\"body\": \"{\\\"access_token\\\": \\\"s3cr3t\\\", \\\"n\\\": \\\"seen\\\"}\"}"}`,
		"form":                  `{"body": "grant=seen&client_secret=s3cr3t&x=1"}`,
		"form at the head":      `{"body": "token=s3cr3t&x=seen"}`,
		"url":                   `{"url": "https://user:s3cr3t@api.example.com/seen?api_key=s3cr3t&q=1"}`,
		"escaped name":          `{"url": "https://api.example.com/seen?api%5Fkey=s3cr3t"}`,
		"bearer in text":        `{"note": "curl -H 'Authorization: Bearer s3cr3tS3CR3T' seen"}`,
		"no JSON":               `seen password=s3cr3t token=s3cr3t Bearer s3cr3ts3cr3t`,
		"two values":            `{"a":"seen"} {"b":"Bearer s3cr3t-s3cr3t"}`,
		"stripe":                `{"a": "sk_live_s3cr3ts3cr3t", "b": "seen"}`,
		"jwt":                   `{"a": "eyJs3cr3ts3cr3t.eyJs3cr3t.s3cr3t", "b": "seen"}`,
		"key":                   `{"a": "-----BEGIN RSA PRIVATE KEY-----\ns3cr3t\n-----END RSA PRIVATE KEY-----", "b": "seen"}`,
		"half a key":            `{"a": "-----BEGIN PRIVATE KEY-----\ns3cr3t", "b": "seen"}`,
		"deep":                  `{"b": "seen", "a": ` + strings.Repeat("[", 100) + `"s3cr3t"` + strings.Repeat("]", 100) + `}`,
		"cut off":               `{"n": "seen", "headers": {"Authorization": "s3cr3t", "X-Api-Key": "s3cr`,
		"cut off number":        `{"s": "seen", "password": 53731337, "otp": 5373`,
		"cut off object":        `{"n": "seen", "credentials": {"user": "s3cr3t", "b": ["s3cr3t"`,
		"cut off body":          `{"n": "seen", "body": "{\"client_secret\": \"s3cr3t\", \"a\": \"s`,
		"cut off body in body":  `{"n": "seen", "body": "{\"body\": \"{\\\"access_token\\\": \\\"s3cr3t\\\", \\\"`,
		"cut off with a quote":  `{"n": "seen", "password": "a\"s3cr3t\"s3cr3t`,
		"cut off list":          `{"n": "seen", "headers": [{"name": "Authorization", "value": "s3cr3t"}, {"value": "s3cr3t", "name": "Cookie"}, {"na`,
		"cut off escaped":       `{"n": "seen", "pass\u0077ord": "s3cr3t", "x":`,
		"cut off in an error":   `HTTP 400: {"error": "seen", "access_token": "s3cr3t", "more`,
		"as Python writes it":   `{'n': 'seen', 'password': 's3cr3t', 'x': None}`,
		"as Python has bytes":   `{'n': 'seen', 'password': b's3cr3t', 'token': u's3cr3t', 'x': None}`,
		"bytes with a quote":    `{'n': 'seen', 'password': b'a\'s3cr3t', 'x': None}`,
		"others between":        `{"n": "seen", "headers": [{"name": "Cookie", "id": 1, "value": "s3cr3t"}, {"na`,
		"as JavaScript has it":  `{ n: 'seen', apiKey: 's3cr3t', password: "s3cr3t" }`,
		"as YAML has it":        "n: seen\npassword: s3cr3t\ntoken: 's3cr3t'",
		"headers that came":     "HTTP 401, seen\nX-Api-Key: s3cr3t s3cr3t\nCookie: a=s3cr3t; b=s3cr3t\nSet-Cookie: s3cr3t",
		"as Ruby writes it":     `{"n"=>"seen", "password"=>"s3cr3t"}`,
		"headers with keys":     `{"headers": {"X-Auth-Key": "s3cr3t", "DD-APPLICATION-KEY": "s3cr3t", "Ocp-Apim-Subscription-Key": "s3cr3t", "x-functions-key": "s3cr3t", "X-Auth": "s3cr3t", "x": "seen"}}`,
		"short names":           `{"auth": {"user": "s3cr3t"}, "pwd": "s3cr3t", "dbPwd": "s3cr3t", "pass": "s3cr3t", "pin": "s3cr3t", "key": "s3cr3t", "oauth": "s3cr3t", "n": "seen"}`,
		"short names cut off":   `{"n": "seen", "auth": "s3cr3t", "pass": "s3cr3t", "applicationKey": "s3cr3t", "commonKey": "s3cr3t", "x`,
		"signed url":            `{"url": "https://a.blob.example.com/seen?sv=1&sig=s3cr3t&key=s3cr3t"}`,
		"hook of Slack":         `{"url": "https://hooks.slack.com/services/T0s3cr3t/B0s3cr3t/s3cr3t", "n": "seen"}`,
		"hook of Slack escaped": `{"n": "seen", "url": "https:\/\/hooks.slack.com\/services\/T0\/B0\/s3cr3t", "cut`,
		"bot of Telegram":       `{"url": "https://api.telegram.org/bot1:s3cr3t/sendMessage?text=seen"}`,
		"file of Telegram":      `{"url": "https://api.telegram.org/file/bot1:s3cr3t/a.png", "n": "seen"}`,
		"hook of Discord":       `{"url": "https://discord.com/api/webhooks/1/s3cr3t?wait=seen"}`,
		"hooks in a text":       `seen: POST https://canary.discord.com/api/v10/webhooks/1/s3cr3t, https://Hooks.Slack.com:443/services/s3cr3t failed`,
		"behind what is hidden": `{"password": "s3cr3t", "n": "seen", "token": "s3cr3t"`,
	} {
		got := h.Payload([]byte(payload), 4000)
		if strings.Contains(name, "number") && strings.Contains(got, "5373") {
			t.Errorf("%s: %s", name, got)
		}
		if name == "number" {
			if strings.Contains(got, "53731337") || !strings.Contains(got, "seen") {
				t.Errorf("%s: %s", name, got)
			}
			continue
		}
		if strings.Contains(strings.ToLower(got), "s3cr3t") || !strings.Contains(got, "seen") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestShown: what is no secret is shown as it is.
func TestShown(t *testing.T) {
	h := secrets.New(nil)
	for payload, want := range map[string]string{
		``: ``,
		`{"account":"acme","n":12345678901234567890}`: "{\n  \"account\": \"acme\",\n  \"n\": 12345678901234567890\n}",
		`"<a&b>"`:                          `"<a&b>"`,
		`hello, world`:                     `hello, world`,
		`wrong token: EOF`:                 `wrong token: EOF`,
		"\xff\xfe\x00":                     "(3 bytes that are no text)",
		`{"password": null}`:               "{\n  \"password\": null\n}",
		`{"n": "cut", "a": [`:              `{"n": "cut", "a": [`,
		`unknown field "token": want "id"`: `unknown field "token": want "id"`,
		`{"password": null, "a`:            `{"password": null, "a`,
		`{"author":"ann","author_id":7,"Idempotency-Key":"job-1","compass":1,"design":2,"keyboard":3,"monkey":4,"spin":5}`: "{\n  \"Idempotency-Key\": \"job-1\",\n  \"author\": \"ann\",\n  \"author_id\": 7,\n  \"compass\": 1,\n  \"design\": 2,\n  \"keyboard\": 3,\n  \"monkey\": 4,\n  \"spin\": 5\n}",
		`{"url":"https://slack.com/services/a"}`: "{\n  \"url\": \"https://slack.com/services/a\"\n}",
		`{"url":"https://a.b/c?d=e"}`:            "{\n  \"url\": \"https://a.b/c?d=e\"\n}",
	} {
		if got := h.Payload([]byte(payload), 1000); got != want {
			t.Errorf("%s: %s, want %s", payload, got, want)
		}
	}
	if got := h.Payload([]byte(strings.Repeat("ä", 100)), 11); got != "äääää\n… and 190 bytes more" {
		t.Errorf("%q", got)
	}
	if got := h.Payload(make([]byte, 1<<20), 1000); got != "(1048576 bytes: too long to show)" {
		t.Errorf("%q", got)
	}
	headers := h.Map(map[string]string{"x-token": "a", "x": "b"})
	if headers["x-token"] != secrets.Hidden || headers["x"] != "b" {
		t.Errorf("%v", headers)
	}
}
