// asynq against HOST PORT; exits non-zero at the first wrong answer.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/hibiken/asynq"
)

func fail(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "asynq: "+format+"\n", args...)
	os.Exit(1)
}

func check(what string, err error) {
	if err != nil {
		fail("%s: %v", what, err)
	}
}

func main() {
	redis := asynq.RedisClientOpt{Addr: os.Args[1] + ":" + os.Args[2], DB: 9}
	client := asynq.NewClient(redis)
	inspector := asynq.NewInspector(redis)
	for n := 0; n < 300; n++ {
		_, err := client.Enqueue(asynq.NewTask("plain", []byte(fmt.Sprint(n))), asynq.Queue("default"))
		check("enqueue", err)
	}
	_, err := client.Enqueue(asynq.NewTask("flaky", nil), asynq.MaxRetry(5), asynq.Queue("critical"))
	check("enqueue", err)
	_, err = client.Enqueue(asynq.NewTask("late", nil), asynq.ProcessIn(time.Second))
	check("enqueue for later", err)
	once := asynq.NewTask("once", []byte("x"))
	_, err = client.Enqueue(once, asynq.Unique(time.Minute))
	check("enqueue once", err)
	if _, err = client.Enqueue(once, asynq.Unique(time.Minute)); !errors.Is(err, asynq.ErrDuplicateTask) {
		fail("the same task twice: %v", err)
	}
	var lock sync.Mutex
	seen, done := map[string]int{}, make(chan struct{})
	server := asynq.NewServer(redis, asynq.Config{
		Concurrency:              20,
		Queues:                   map[string]int{"critical": 6, "default": 3},
		LogLevel:                 asynq.FatalLevel,
		DelayedTaskCheckInterval: 200 * time.Millisecond,
		RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 100 * time.Millisecond },
	})
	handler := func(_ context.Context, task *asynq.Task) error {
		lock.Lock()
		defer lock.Unlock()
		key := task.Type() + string(task.Payload())
		seen[key]++
		if key == "flaky" && seen[key] < 3 {
			return errors.New("not yet")
		}
		if len(seen) == 303 && seen["flaky"] == 3 {
			select {
			case <-done:
			default:
				close(done)
			}
		}
		return nil
	}
	check("start", server.Start(asynq.HandlerFunc(handler)))
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		fail("%d of 303 kinds of tasks in a minute, flaky %d times", len(seen), seen["flaky"])
	}
	server.Shutdown()
	for key, times := range seen {
		if key != "flaky" && times != 1 {
			fail("%s ran %d times", key, times)
		}
	}
	for _, queue := range []string{"default", "critical"} {
		info, err := inspector.GetQueueInfo(queue)
		check("queue", err)
		if info.Size != 0 {
			fail("%d tasks are left in %s", info.Size, queue)
		}
		check("delete", inspector.DeleteQueue(queue, true))
	}
	check("close", client.Close())
}
