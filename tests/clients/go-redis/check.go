// go-redis against HOST PORT; exits non-zero at the first wrong answer.
package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

var ctx = context.Background()

func expect(what string, got, wanted any) {
	if !reflect.DeepEqual(got, wanted) {
		fmt.Fprintf(os.Stderr, "go-redis: %s: got %#v, wanted %#v\n", what, got, wanted)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintf(os.Stderr, "go-redis: %v\n", err)
		os.Exit(1)
	}
	return value
}

func expectError(what string, err error, text string) {
	if err == nil || !strings.Contains(err.Error(), text) {
		expect(what, fmt.Sprint(err), text)
	}
}

func connect(address string, protocol int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: address, DB: 9, Protocol: protocol})
}

func texts(r *redis.Client) {
	expect("set", must(r.Set(ctx, "s", "hello", 0).Result()), "OK")
	expect("get", must(r.Get(ctx, "s").Result()), "hello")
	expect("get missing", r.Get(ctx, "none").Err(), redis.Nil)
	expect("setnx", must(r.SetNX(ctx, "s", "x", 0).Result()), false)
	expect("append", must(r.Append(ctx, "s", "!").Result()), int64(6))
	expect("getrange", must(r.GetRange(ctx, "s", 1, -2).Result()), "ello")
	expect("incrby", must(r.IncrBy(ctx, "n", 42).Result()), int64(42))
	expect("incrbyfloat", must(r.IncrByFloat(ctx, "f", 10.5).Result()), 10.5)
	expect("mset", must(r.MSet(ctx, "a", "1", "b", "2").Result()), "OK")
	expect("mget", must(r.MGet(ctx, "a", "none", "b").Result()), []any{"1", nil, "2"})
	expectError("incr of text", r.Incr(ctx, "s").Err(), "value is not an integer or out of range")
	expectError("unknown", r.Do(ctx, "NOSUCH").Err(), "unknown command")
}

// What a cluster client does against a server with --cluster_mode=emulated.
func cluster(address string, protocol int) {
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}, Protocol: protocol})
	defer r.Close()
	must(r.FlushDB(ctx).Result())
	for i := range 200 {
		name := fmt.Sprint("key:", i)
		expect("cluster set", must(r.Set(ctx, name, name, 0).Result()), "OK")
		expect("cluster get", must(r.Get(ctx, name).Result()), name)
	}
	expect("cluster dbsize", must(r.DBSize(ctx).Result()), int64(200))
	masters := 0
	must(0, r.ForEachMaster(ctx, func(ctx context.Context, one *redis.Client) error {
		masters++
		return one.Ping(ctx).Err()
	}))
	expect("cluster masters", masters, 1)
	expect("cluster mset of a slot", must(r.MSet(ctx, "{t}a", "1", "{t}b", "2").Result()), "OK")
	expect("cluster mget of a slot", must(r.MGet(ctx, "{t}a", "{t}b").Result()), []any{"1", "2"})
	pipe := r.Pipeline()
	for i := range 50 {
		pipe.Append(ctx, fmt.Sprint("key:", i), "!")
	}
	expect("cluster pipeline", len(must(pipe.Exec(ctx))), 50)
	expect("cluster keyslot", must(r.ClusterKeySlot(ctx, "foo").Result()), int64(12182))
	expect("cluster shards", len(must(r.ClusterShards(ctx).Result())), 1)
}

// What a cluster client does against three servers (tests/clients/three.sh), on a port and the two above, whose slots change
// owners meanwhile.
func nodes(host string, first int, protocol int) {
	push := func(slots [3][2]int) {
		var groups []string
		for at, slots := range slots {
			groups = append(groups, fmt.Sprintf(
				`{"slot_ranges":[{"start":%d,"end":%d}],"master":{"id":"node%d","ip":"%s","port":%d}}`,
				slots[0], slots[1], at, host, first+at))
		}
		for at := range 3 {
			node := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("%s:%d", host, first+at)})
			expect("config", must(node.Do(ctx, "DFLYCLUSTER", "CONFIG", "["+strings.Join(groups, ",")+"]").Text()), "OK")
			node.Close()
		}
	}
	thirds := [3][2]int{{0, 5460}, {5461, 10922}, {10923, 16383}}
	shifted := [3][2]int{{0, 1000}, {1001, 12500}, {12501, 16383}}
	push(thirds)
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{fmt.Sprintf("%s:%d", host, first)}, Protocol: protocol})
	defer r.Close()
	for _, slots := range [][3][2]int{thirds, shifted, thirds} {
		push(slots)
		for i := range 300 {
			name := fmt.Sprint("key:", i)
			expect("nodes set", must(r.Set(ctx, name, name, 0).Result()), "OK")
		}
		pipe := r.Pipeline()
		var gets []*redis.StringCmd
		for i := range 300 {
			gets = append(gets, pipe.Get(ctx, fmt.Sprint("key:", i)))
		}
		must(pipe.Exec(ctx))
		for i, get := range gets {
			expect("nodes get", must(get.Result()), fmt.Sprint("key:", i))
		}
		done := must(r.TxPipelined(ctx, func(tx redis.Pipeliner) error {
			tx.Set(ctx, "{p}a", 1, 0)
			tx.Incr(ctx, "{p}a")
			return nil
		}))
		expect("nodes transaction", done[1].(*redis.IntCmd).Val(), int64(2))
	}
	expect("nodes shards", len(must(r.ClusterShards(ctx).Result())), 3)
}

// What a client of Sentinel does while the leader of a group changes (tests/clients/group.sh), or one of a cluster while a master
// does (six.sh): once as planned, once by a kill. What it was told of must be there once the last one leads.
func group(host string, first int, isCluster bool, protocol int) {
	var sentinels []string
	for at := range 3 {
		sentinels = append(sentinels, fmt.Sprintf("%s:%d", host, first+at+10))
	}
	var r redis.UniversalClient
	if isCluster {
		r = redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{fmt.Sprintf("%s:%d", host, first)}, Protocol: protocol})
	} else {
		r = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "darter", SentinelAddrs: sentinels, Protocol: protocol})
	}
	defer r.Close()
	const patience = time.Minute
	// The addresses of the group that has the key, of which a cluster alone tells the followers: the leader first.
	members := func() []string {
		if !isCluster {
			asked := redis.NewSentinelClient(&redis.Options{Addr: sentinels[0], Protocol: protocol})
			defer asked.Close()
			return []string{strings.Join(must(asked.GetMasterAddrByName(ctx, "darter").Result()), ":")}
		}
		for at := range 6 {
			asked := redis.NewClient(&redis.Options{Addr: fmt.Sprintf("%s:%d", host, first+at), Protocol: protocol})
			defer asked.Close()
			slot := asked.ClusterKeySlot(ctx, "told").Val()
			// The dead one knows no ranges.
			for _, one := range asked.ClusterSlots(ctx).Val() {
				if int64(one.Start) <= slot && slot <= int64(one.End) {
					var found []string
					for _, node := range one.Nodes {
						found = append(found, node.Addr)
					}
					return found
				}
			}
		}
		expect("nodes that know the slot", 0, 1)
		return nil
	}
	leader := func() string { return members()[0] }
	answered, count := map[string]bool{}, 0
	// Adds until as many more were answered; an error leaves open whether it took place.
	write := func(more int) {
		wanted := len(answered) + more
		for began := time.Now(); len(answered) < wanted; {
			count++
			number := strconv.Itoa(count)
			if err := r.SAdd(ctx, "told", number).Err(); err == nil {
				answered[number] = true
			} else if time.Since(began) > patience {
				must(0, err)
			} else {
				time.Sleep(50 * time.Millisecond)
			}
		}
	}
	write(200)
	one := leader()
	at, words := one, []any{"FAILOVER"}
	if isCluster {
		at, words = members()[1], []any{"CLUSTER", "FAILOVER"}
	}
	old := redis.NewClient(&redis.Options{Addr: at, Protocol: protocol, ReadTimeout: patience})
	expect("planned change", must(old.Do(ctx, words...).Text()), "OK")
	old.Close()
	for began := time.Now(); leader() == one; time.Sleep(50 * time.Millisecond) {
		expect("another leader in time", time.Since(began) < patience, true)
	}
	write(200)
	two := redis.NewClient(&redis.Options{Addr: leader(), Protocol: protocol})
	info := must(two.Info(ctx, "server").Result())
	_, rest, _ := strings.Cut(info, "process_id:")
	pid, _, _ := strings.Cut(rest, "\r")
	must(0, syscall.Kill(must(strconv.Atoi(pid)), syscall.SIGKILL))
	two.Close()
	write(200)
	found := must(r.SMembersMap(ctx, "told").Result())
	for number := range answered {
		_, isThere := found[number]
		expect("number "+number+", which was answered,", isThere, true)
	}
}

// What a cluster client does while slots move as a whole, as changes.py says: nothing fails, is lost or is done twice.
func moves(address string) {
	const workers, keys = 4, 50
	r := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{address}})
	defer r.Close()
	var isOver atomic.Bool
	var answers atomic.Int64
	var all sync.WaitGroup
	for who := range workers {
		all.Go(func() {
			var counts [keys]int64
			tag := func(at int) string { return fmt.Sprintf("{%d-%d}", who, at) }
			for n := 0; !isOver.Load(); n++ {
				number, list := tag(n%keys)+"n", tag(n%keys)+"l"
				counts[n%keys]++
				wanted := counts[n%keys]
				if n%4 == 0 {
					pipe := r.TxPipeline()
					count, len := pipe.Incr(ctx, number), pipe.RPush(ctx, list, wanted)
					must(pipe.Exec(ctx))
					expect(number, []int64{count.Val(), len.Val()}, []int64{wanted, wanted})
				} else {
					expect(number, must(r.Incr(ctx, number).Result()), wanted)
					expect(list, must(r.RPush(ctx, list, wanted).Result()), wanted)
				}
				if answers.Add(1)%100 == 0 {
					fmt.Println("answered")
				}
			}
			for at, count := range counts {
				items := must(r.LRange(ctx, tag(at)+"l", 0, -1).Result())
				expect("length", len(items), int(count))
				for i, item := range items {
					expect("item", item, strconv.Itoa(i+1))
				}
			}
		})
	}
	must(io.Copy(io.Discard, os.Stdin))
	isOver.Store(true)
	all.Wait()
}

func keys(r *redis.Client) {
	r.FlushDB(ctx)
	wanted := map[string]bool{}
	for i := range 500 {
		name := fmt.Sprintf("key:%d", i)
		wanted[name] = true
		must(r.Set(ctx, name, "x", 0).Result())
	}
	expect("dbsize", must(r.DBSize(ctx).Result()), int64(500))
	found := map[string]bool{}
	for pages := r.Scan(ctx, 0, "key:*", 20).Iterator(); pages.Next(ctx); {
		found[pages.Val()] = true
	}
	expect("scan", found, wanted)
	expect("exists", must(r.Exists(ctx, "key:1", "key:2", "none").Result()), int64(2))
	expect("del", must(r.Del(ctx, "key:1", "none").Result()), int64(1))
	expect("rename", must(r.Rename(ctx, "key:3", "moved").Result()), "OK")
	expect("type", must(r.Type(ctx, "moved").Result()), "string")
	expectError("rename of nothing", r.Rename(ctx, "none", "x").Err(), "no such key")
}

func expiry(r *redis.Client) {
	must(r.Set(ctx, "e", "x", 40*time.Millisecond).Result())
	time.Sleep(60 * time.Millisecond)
	expect("expired", r.Get(ctx, "e").Err(), redis.Nil)
	must(r.Set(ctx, "e", "x", 100*time.Second).Result())
	left := must(r.TTL(ctx, "e").Result())
	expect("ttl", left > 50*time.Second && left <= 100*time.Second, true)
	expect("persist", must(r.Persist(ctx, "e").Result()), true)
	expect("expireat", must(r.ExpireAt(ctx, "e", time.Unix(1, 0)).Result()), true)
	expect("gone", must(r.Exists(ctx, "e").Result()), int64(0))
}

func pipelines(r *redis.Client) {
	pipe := r.Pipeline()
	for i := range 1000 {
		pipe.Set(ctx, fmt.Sprintf("p%d", i), i, 0)
	}
	pipe.Set(ctx, "text", "x", 0)
	failed := pipe.Incr(ctx, "text")
	last := pipe.Get(ctx, "p999")
	_, err := pipe.Exec(ctx)
	expectError("pipeline", err, "not an integer")
	expectError("pipeline's failing command", failed.Err(), "not an integer")
	expect("pipeline end", last.Val(), "999")
}

func transactions(r *redis.Client) {
	var count *redis.IntCmd
	must(r.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.Set(ctx, "t", "1", 0)
		count = pipe.Incr(ctx, "t")
		return nil
	}))
	expect("multi", count.Val(), int64(2))
	err := r.Watch(ctx, func(tx *redis.Tx) error {
		must(r.Set(ctx, "t", "changed", 0).Result())
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			pipe.Set(ctx, "t", "lost", 0)
			return nil
		})
		return err
	}, "t")
	expect("watch", err, redis.TxFailedErr)
	expect("after watch", r.Get(ctx, "t").Val(), "changed")
}

func publish(r *redis.Client) {
	listener := r.Subscribe(ctx, "news")
	must(listener.Receive(ctx))
	if err := listener.PSubscribe(ctx, "n*"); err != nil {
		expect("psubscribe", err.Error(), "no error")
	}
	must(listener.Receive(ctx))
	expect("publish", must(r.Publish(ctx, "news", "hello").Result()), int64(2))
	for range 2 {
		limit, cancel := context.WithTimeout(ctx, 60*time.Second)
		message := must(listener.ReceiveMessage(limit))
		expect("message", message.Channel+" "+message.Payload, "news hello")
		cancel()
	}
	listener.Close()
}

func bytesOfAllKinds(r *redis.Client) {
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	must(r.Set(ctx, string(every), every, 0).Result())
	expect("binary", must(r.Get(ctx, string(every)).Bytes()), every)
	big := make([]byte, 8<<20)
	must(rand.Read(big))
	must(r.Set(ctx, "big", big, 0).Result())
	expect("8 MiB", bytes.Equal(must(r.Get(ctx, "big").Bytes()), big), true)
}

func parallel(r *redis.Client) {
	must(r.Set(ctx, "shared", 0, 0).Result())
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			for range 200 {
				must(r.Incr(ctx, "shared").Result())
			}
		})
	}
	all.Wait()
	expect("parallel incr", must(r.Get(ctx, "shared").Result()), "2000")
}

func reconnect(r, other *redis.Client) {
	connection := r.Conn()
	id := must(connection.ClientID(ctx).Result())
	connection.Close()
	expect("client kill", must(other.ClientKillByFilter(ctx, "ID", fmt.Sprint(id)).Result()), int64(1))
	for range 20 {
		expect("after the kill", must(r.Set(ctx, "again", "yes", 0).Result()), "OK")
	}
}

func main() {
	address := os.Args[1] + ":" + os.Args[2]
	if len(os.Args) > 3 && os.Args[3] == "group" {
		group(os.Args[1], must(strconv.Atoi(os.Args[2])), len(os.Args) > 4, 3)
		return
	}
	if len(os.Args) > 3 && os.Args[3] == "exact" {
		moves(address)
		return
	}
	for _, protocol := range []int{2, 3} {
		if len(os.Args) > 3 && os.Args[3] == "cluster" {
			cluster(address, protocol)
			continue
		}
		if len(os.Args) > 3 && os.Args[3] == "nodes" {
			nodes(os.Args[1], must(strconv.Atoi(os.Args[2])), protocol)
			continue
		}
		r, other := connect(address, protocol), connect(address, protocol)
		expect("ping", must(r.Ping(ctx).Result()), "PONG")
		must(r.FlushDB(ctx).Result())
		texts(r)
		keys(r)
		expiry(r)
		pipelines(r)
		transactions(r)
		if !strings.Contains(os.Getenv("CHECK_WITHOUT"), "pubsub") {
			publish(r)
		}
		bytesOfAllKinds(r)
		parallel(r)
		reconnect(r, other)
		must(r.FlushDB(ctx).Result())
		r.Close()
		other.Close()
	}
}
