// rueidis' client-side cache (DoCache) against HOST PORT; exits non-zero at the first wrong answer. Empties the server.
package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/redis/rueidis"
)

var ctx = context.Background()

func expect(what string, got, wanted any) {
	if got != wanted {
		fmt.Fprintf(os.Stderr, "rueidis cache: %s: got %v, wanted %v\n", what, got, wanted)
		os.Exit(1)
	}
}

func open(address string) rueidis.Client {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, SelectDB: 9})
	expect("connecting", err, nil)
	return client
}

func main() {
	address := os.Args[1] + ":" + os.Args[2]
	plain, cached := open(address), open(address)
	defer plain.Close()
	defer cached.Close()

	do := func(command rueidis.Completed) { expect("a command", plain.Do(ctx, command).Error(), nil) }
	asked := func() string {
		text, err := plain.Do(ctx, plain.B().Info().Section("commandstats").Build()).ToString()
		expect("INFO", err, nil)
		return regexp.MustCompile(`cmdstat_get:calls=\d+`).FindString(text)
	}
	get := func() (string, bool) {
		answer := cached.DoCache(ctx, cached.B().Get().Key("k").Cache(), time.Hour)
		text, err := answer.ToString()
		if rueidis.IsRedisNil(err) {
			text, err = "nil", nil
		}
		expect("GET", err, nil)
		return text, answer.IsCacheHit()
	}
	// The message travels by itself; until it is here, the old value may be seen.
	eventually := func(what, wanted string) {
		for until := time.Now().Add(60 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
			if text, _ := get(); text == wanted {
				return
			}
		}
		text, _ := get()
		expect(what, text, wanted)
	}

	do(plain.B().Flushall().Build())
	do(plain.B().Set().Key("k").Value("one").Build())
	text, isHit := get()
	expect("first read", text, "one")
	expect("first read is a hit", isHit, false)
	before := asked()
	for range 100 {
		text, isHit = get()
		expect("hit", text, "one")
		expect("is a hit", isHit, true)
	}
	expect("what the server was asked", asked(), before)

	do(plain.B().Set().Key("k").Value("two").Build())
	eventually("after a change elsewhere", "two")
	do(plain.B().Set().Key("k").Value("brief").Px(5 * time.Second).Build())
	eventually("before expiry", "brief")
	eventually("after expiry", "nil")
	do(plain.B().Set().Key("k").Value("three").Build())
	eventually("a key that was absent", "three")
	do(plain.B().Flushall().Build())
	eventually("after FLUSHALL", "nil")
}
