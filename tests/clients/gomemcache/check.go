// gomemcache against HOST PORT; empties database 0 and exits non-zero at the first wrong answer.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

func fail(what string, got, wanted any) {
	fmt.Fprintf(os.Stderr, "gomemcache: %s: got %v, wanted %v\n", what, got, wanted)
	os.Exit(1)
}

func ok(what string, err error) {
	if err != nil {
		fail(what, err, "no error")
	}
}

func is(what string, err, wanted error) {
	if !errors.Is(err, wanted) {
		fail(what, err, wanted)
	}
}

func value(c *memcache.Client, key, wanted string) *memcache.Item {
	item, err := c.Get(key)
	ok("get "+key, err)
	if string(item.Value) != wanted {
		fail("get "+key, string(item.Value), wanted)
	}
	return item
}

func text(key, value string) *memcache.Item {
	return &memcache.Item{Key: key, Value: []byte(value)}
}

func classic(c *memcache.Client) {
	ok("ping", c.Ping())
	ok("set", c.Set(&memcache.Item{Key: "k", Value: []byte("v"), Flags: 4000000000, Expiration: 100}))
	if item := value(c, "k", "v"); item.Flags != 4000000000 {
		fail("flags", item.Flags, uint32(4000000000))
	}
	_, err := c.Get("none")
	is("get missing", err, memcache.ErrCacheMiss)
	is("add", c.Add(text("k", "x")), memcache.ErrNotStored)
	ok("add new", c.Add(text("k2", "x")))
	ok("replace", c.Replace(text("k2", "y")))
	is("replace missing", c.Replace(text("none", "y")), memcache.ErrNotStored)
	ok("append", c.Append(text("k", "2")))
	ok("prepend", c.Prepend(text("k", "0")))
	value(c, "k", "0v2")
	ok("touch", c.Touch("k", 50))
	is("touch missing", c.Touch("none", 50), memcache.ErrCacheMiss)
	item, err := c.GetAndTouch("k", 60)
	ok("get and touch", err)
	if string(item.Value) != "0v2" {
		fail("get and touch", string(item.Value), "0v2")
	}
	ok("delete", c.Delete("k2"))
	is("delete missing", c.Delete("k2"), memcache.ErrCacheMiss)
}

func tokens(c *memcache.Client) {
	ok("set", c.Set(text("t", "1")))
	first, second := value(c, "t", "1"), value(c, "t", "1")
	first.Value = []byte("2")
	ok("compare and swap", c.CompareAndSwap(first))
	second.Value = []byte("3")
	is("compare and swap again", c.CompareAndSwap(second), memcache.ErrCASConflict)
	ok("delete", c.Delete("t"))
	is("compare and swap missing", c.CompareAndSwap(second), memcache.ErrCacheMiss)
}

func many(c *memcache.Client) {
	keys := []string{"none"}
	for n := range 200 {
		key := fmt.Sprintf("m%d", n)
		keys = append(keys, key)
		ok("set "+key, c.Set(text(key, key)))
	}
	items, err := c.GetMulti(keys)
	ok("get multi", err)
	if len(items) != 200 || string(items["m7"].Value) != "m7" {
		fail("get multi", len(items), 200)
	}
}

func numbers(c *memcache.Client) {
	ok("set", c.Set(text("n", "18446744073709551615")))
	n, err := c.Increment("n", 2)
	ok("increment", err)
	if n != 1 {
		fail("increment wraps", n, 1)
	}
	n, err = c.Decrement("n", 5)
	ok("decrement", err)
	if n != 0 {
		fail("decrement stops", n, 0)
	}
	_, err = c.Increment("none", 1)
	is("increment missing", err, memcache.ErrCacheMiss)
	if _, err = c.Increment("k", 1); err == nil {
		fail("increment a text", err, "an error")
	}
}

func large(c *memcache.Client) {
	big := bytes.Repeat([]byte("x"), 1000000)
	ok("set big", c.Set(&memcache.Item{Key: "big", Value: big}))
	value(c, "big", string(big))
	if err := c.Set(&memcache.Item{Key: "big", Value: bytes.Repeat(big, 3)}); err == nil {
		fail("set too big", err, "an error")
	}
	_, err := c.Get("big")
	is("what was too big", err, memcache.ErrCacheMiss)
	ok("set empty", c.Set(text("empty", "")))
	value(c, "empty", "")
}

func parallel(c *memcache.Client) {
	ok("set", c.Set(text("sum", "0")))
	var group sync.WaitGroup
	for range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			for range 500 {
				_, err := c.Increment("sum", 1)
				ok("increment", err)
			}
		}()
	}
	group.Wait()
	value(c, "sum", "4000")
}

func main() {
	c := memcache.New(os.Args[1] + ":" + os.Args[2])
	c.Timeout = 60 * time.Second
	c.MaxIdleConns = 16
	ok("flush all", c.FlushAll())
	classic(c)
	tokens(c)
	many(c)
	numbers(c)
	large(c)
	parallel(c)
	ok("delete all", c.DeleteAll())
	_, err := c.Get("sum")
	is("after delete all", err, memcache.ErrCacheMiss)
}
