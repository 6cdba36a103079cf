package admin_test

import (
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// fill makes a Redis with 1,000 limits, 100,000 limiters of values and 100,000 jobs, most
// of them in line. It writes what a fleet would: to have a fleet do it takes an hour.
const fillLua = `
local t = redis.call('TIME')
local us = t[1] * 1000000
for i = ARGV[1], ARGV[2] do
  local queue = i % 5 == 0 and 'archive' or 'default'
  local id = string.format('job-%06d', i)
  local task = 'asynq:{' .. queue .. '}:t:' .. id
  local kind = i % 2 == 0 and 'mail:send' or 'http:request'
  local msg = '\10' .. string.char(#kind) .. kind .. '\18' .. string.char(15) .. '{"account":"a"}' .. '\26' .. string.char(#id) .. id .. '\34' .. string.char(#queue) .. queue .. '\40\25'
  if queue == 'archive' then
    redis.call('HSET', task, 'msg', msg, 'state', 'archived')
    redis.call('ZADD', 'asynq:{archive}:archived', t[1] - i, id)
  else
    local score = t[1] + 86400 + i % 3600
    local limiter = 'account:v' .. i
    redis.call('HSET', task, 'msg', msg, 'state', 'retry', 'jt', 'p ' .. string.format('%.0f', us - i) .. ' 0 ' .. score .. ' 1 0 ' .. limiter)
    redis.call('ZADD', 'asynq:{default}:retry', score, id)
    redis.call('ZADD', 'asynq:{default}:jt:line:' .. limiter, us - i, id)
    redis.call('ZADD', 'asynq:{default}:jt:lines', 1e15, limiter)
  end
  redis.call('HSET', 'account:v' .. i, 'rate', 10, 'interval', 1000, 'type', 0)
end`

// large is a worker among all that.
func large(tb testing.TB) *site {
	var yaml strings.Builder
	yaml.WriteString("limits:\n  account: { rate: 10/1s, key: payload.account }\n")
	for i := range 1000 {
		fmt.Fprintf(&yaml, "  limit-%03d: { rate: %d/1s }\n", i, i+1)
	}
	yaml.WriteString("pools: [ { name: default, concurrency: 5, queues: { idle: 1 } } ]\njobs:\n  \"http:request\": { limits: [account] }\n")
	for i := range 1000 {
		fmt.Fprintf(&yaml, "  \"job-%03d\": { limits: [limit-%03d] }\n", i, i)
	}
	s := newSite(tb, 1, yaml.String(), token)
	client := asynq.NewClientFromRedisClient(s.rdb)
	for _, queue := range []string{"default", "archive"} { // asynq knows a queue once something was enqueued there
		if _, err := client.Enqueue(asynq.NewTask("mail:send", nil), asynq.Queue(queue), asynq.TaskID("first")); err != nil {
			tb.Fatal(err)
		}
	}
	for i := 1; i <= 100_000; i += 1000 {
		if err := s.rdb.Eval(tb.Context(), fillLua, nil, i, i+999).Err(); err != nil && err != redis.Nil {
			tb.Fatal(err)
		}
	}
	return s
}

// redisTime is how much processor time Redis has used.
func (s *site) redisTime() time.Duration {
	s.tb.Helper()
	info, err := s.rdb.InfoMap(s.tb.Context(), "cpu").Result()
	if err != nil {
		s.tb.Fatal(err)
	}
	total := 0.0
	for _, field := range []string{"used_cpu_sys", "used_cpu_user"} {
		seconds, err := strconv.ParseFloat(info["CPU"][field], 64)
		if err != nil {
			s.tb.Fatal(err)
		}
		total += seconds
	}
	return time.Duration(total * float64(time.Second))
}

// BenchmarkLarge prints, with 1,000 limits, 100,000 limiters of values and 100,000
// jobs, what Redis has to do for a page of jobs and for a second of watching, beside
// what the worker itself costs in a second, and when the page is there:
//
//	go test -run - -bench Large -benchtime 1x ./worker/admin
func BenchmarkLarge(b *testing.B) {
	s := large(b)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	cost := func(do func()) time.Duration {
		before := s.redisTime()
		do()
		return s.redisTime() - before
	}
	get := func(path string) {
		if status, body := s.ask(asked{method: http.MethodGet, path: path}); status != http.StatusOK {
			b.Fatalf("%s: %d %.200s", path, status, body)
		}
	}
	const seconds, pages = 10, 10
	watch := func(do func()) time.Duration {
		return cost(func() {
			for range seconds {
				do()
				time.Sleep(time.Second) // what is measured is a second of somebody watching
			}
		}) / seconds
	}
	for b.Loop() {
		idle := watch(func() {})
		n := 0
		watched := watch(func() {
			get("/api/overview")
			if n++; n%5 == 1 {
				get("/api/workers")
				get("/api/past")
			}
		})
		b.ReportMetric(0, "ns/op")
		b.ReportMetric(ms(idle), "idle-ms/s")
		b.ReportMetric(ms(watched-idle), "watching-ms/s")
		for name, query := range map[string]string{
			"archived": "state=archived", "waiting": "state=waiting", "type": "state=waiting&type=http:request", "value": "state=waiting&value=v77777", "nothing": "state=failed",
		} {
			b.ReportMetric(ms(cost(func() {
				for range pages {
					get("/api/jobs?" + query)
				}
			})/pages), name+"-page-ms")
		}
		b.ReportMetric(ms(cost(func() {
			for range pages {
				get("/api/job?task=job-077777")
			}
		})/pages), "job-ms")
	}
}

// BenchmarkFirstPaint prints how long a browser takes from the address to the first
// paint, and until the limits are there, with as much in Redis:
//
//	go test -run - -bench FirstPaint -benchtime 1x ./worker/admin
func BenchmarkFirstPaint(b *testing.B) {
	s := large(b)
	page := openBrowser(b)
	page.resize(1280, 900, "light")
	var paints, cards []float64
	for b.Loop() {
		for range 5 {
			page.do(chromedp.Navigate("http://" + s.addr + "/"))
			page.until(patience, `document.querySelectorAll("#cards article").length > 0`)
			cards = append(cards, value[float64](page, `performance.now()`))
			paints = append(paints, value[float64](page, `performance.getEntriesByName("first-contentful-paint")[0].startTime`))
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(median(paints), "first-paint-ms")
	b.ReportMetric(median(cards), "limits-ms")
	if dir := os.Getenv(screenshotEnv); dir != "" && dir != "1" {
		page.screenshot(dir + "/large.png")
	}
}
