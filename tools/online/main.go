// Command online stores who is online, as a hash, a sorted set or sets by second, and prints what that costs: time for a
// write, the server's processor time, and memory for a user.
//
// It starts the servers it compares itself, one at a time and afresh for each row, and counts the members afterwards: a
// row in which one is missing fails. The client is go-redis, with one goroutine, with one for each core and more, and
// with batches.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	firstUser     = 10_000_000
	firstSecond   = 1_679_800_725
	usersBySecond = 1_800
	ticksBySecond = 100
)

// A shape is a way to keep users and when they were seen.
type shape struct {
	name  string
	add   func(context.Context, redis.Pipeliner, []int)
	count func(context.Context, *redis.Client, int) (int64, error)
}

func secondOf(user int) int { return firstSecond + (user-firstUser)/usersBySecond }

func setKey(second int) string { return "s:online:" + strconv.Itoa(second) }

var shapes = []shape{
	{
		name: "hash",
		add: func(ctx context.Context, pipe redis.Pipeliner, users []int) {
			pairs := make([]any, 0, 2*len(users))
			for _, user := range users {
				pairs = append(pairs, user, secondOf(user))
			}
			pipe.HSet(ctx, "h:online", pairs...)
		},
		count: func(ctx context.Context, client *redis.Client, _ int) (int64, error) {
			return client.HLen(ctx, "h:online").Result()
		},
	},
	{
		name: "sorted set",
		add: func(ctx context.Context, pipe redis.Pipeliner, users []int) {
			members := make([]redis.Z, 0, len(users))
			for _, user := range users {
				members = append(members, redis.Z{Score: float64(secondOf(user)), Member: user})
			}
			pipe.ZAdd(ctx, "z:online", members...)
		},
		count: func(ctx context.Context, client *redis.Client, _ int) (int64, error) {
			return client.ZCard(ctx, "z:online").Result()
		},
	},
	{
		name: "set",
		add: func(ctx context.Context, pipe redis.Pipeliner, users []int) {
			for len(users) > 0 {
				second, same := secondOf(users[0]), 1
				for same < len(users) && secondOf(users[same]) == second {
					same++
				}
				members := make([]any, 0, same)
				for _, user := range users[:same] {
					members = append(members, user)
				}
				pipe.SAdd(ctx, setKey(second), members...)
				users = users[same:]
			}
		},
		count: func(ctx context.Context, client *redis.Client, users int) (int64, error) {
			var sum int64
			for second := firstSecond; second <= secondOf(firstUser+users-1); second++ {
				n, err := client.SCard(ctx, setKey(second)).Result()
				if err != nil {
					return 0, err
				}
				sum += n
			}
			return sum, nil
		},
	},
}

// A mode is how many write at once, and how many users a write has.
type mode struct {
	name    string
	writers int
	batch   int
	users   int
}

// A server is a process that answers on a port.
type server struct {
	process *exec.Cmd
	client  *redis.Client
	dir     string
}

func start(binary string) (*server, error) {
	dir, err := os.MkdirTemp("", "online")
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	process := exec.Command(binary, "--port", strconv.Itoa(port), "--dir", dir, "--save", "")
	if err := process.Start(); err != nil {
		return nil, err
	}
	client := redis.NewClient(&redis.Options{
		Addr: "127.0.0.1:" + strconv.Itoa(port), PoolSize: 64, ReadTimeout: time.Minute, WriteTimeout: time.Minute,
	})
	s := &server{process: process, client: client, dir: dir}
	for wait := 0; wait < 500; wait++ {
		if client.Ping(context.Background()).Err() == nil {
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	s.stop()
	return nil, fmt.Errorf("%s does not answer", binary)
}

func (s *server) stop() {
	s.client.Close()
	s.process.Process.Kill()
	s.process.Wait()
	os.RemoveAll(s.dir)
}

// cpu is the processor time of the server so far.
func (s *server) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.process.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 13 {
		return 0, fmt.Errorf("stat has %d fields", len(fields))
	}
	user, err := strconv.Atoi(fields[11])
	if err != nil {
		return 0, err
	}
	system, err := strconv.Atoi(fields[12])
	return time.Duration(user+system) * time.Second / ticksBySecond, err
}

// resident is the memory the server has, in bytes.
func (s *server) resident() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", s.process.Process.Pid))
	if err != nil {
		return 0, err
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	return pages * int64(os.Getpagesize()), err
}

// A result is one row's numbers.
type result struct {
	wall, cpu time.Duration
	bytes     int64
}

// fill stores m.users users.
func fill(ctx context.Context, s *server, what shape, m mode) error {
	var next atomic.Int64
	var group sync.WaitGroup
	failed := make(chan error, m.writers)
	for range m.writers {
		group.Add(1)
		go func() {
			defer group.Done()
			users := make([]int, 0, m.batch)
			for {
				end := int(next.Add(int64(m.batch)))
				first, last := end-m.batch, min(end, m.users)
				if first >= last {
					return
				}
				users = users[:0]
				for user := first; user < last; user++ {
					users = append(users, firstUser+user)
				}
				pipe := s.client.Pipeline()
				what.add(ctx, pipe, users)
				if _, err := pipe.Exec(ctx); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	group.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// measure stores m.users users in a fresh server.
func measure(binary string, what shape, m mode) (result, error) {
	s, err := start(binary)
	if err != nil {
		return result{}, err
	}
	defer s.stop()
	ctx := context.Background()
	empty, err := s.resident()
	if err != nil {
		return result{}, err
	}
	before, err := s.cpu()
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	if err := fill(ctx, s, what, m); err != nil {
		return result{}, err
	}
	wall := time.Since(began)
	after, err := s.cpu()
	if err != nil {
		return result{}, err
	}
	full, err := s.resident()
	if err != nil {
		return result{}, err
	}
	count, err := what.count(ctx, s.client, m.users)
	if err != nil {
		return result{}, err
	}
	if count != int64(m.users) {
		return result{}, fmt.Errorf("%d of %d members are there", count, m.users)
	}
	return result{wall: wall, cpu: after - before, bytes: full - empty}, nil
}

// A lister is a way to find the sets of all seconds again.
type lister struct {
	name string
	keys func(context.Context, *redis.Client) ([]string, error)
}

var listers = []lister{
	{name: "KEYS", keys: func(ctx context.Context, client *redis.Client) ([]string, error) {
		return client.Keys(ctx, "s:online:*").Result()
	}},
	{name: "SCAN", keys: func(ctx context.Context, client *redis.Client) ([]string, error) {
		var all []string
		found := map[string]bool{}
		scan := client.Scan(ctx, 0, "s:online:*", 1000).Iterator()
		for scan.Next(ctx) {
			// A key may be told twice.
			if !found[scan.Val()] {
				found[scan.Val()] = true
				all = append(all, scan.Val())
			}
		}
		return all, scan.Err()
	}},
}

// counted stores users in a fresh server and counts them again, as a program does that knows no names: each structure by
// its own command, and the sets by KEYS and by SCAN. It prints a row for each way.
func counted(name, binary string, what shape, users, batch int) error {
	s, err := start(binary)
	if err != nil {
		return err
	}
	defer s.stop()
	ctx := context.Background()
	if err := fill(ctx, s, what, mode{writers: 4 * runtime.NumCPU(), batch: batch, users: users}); err != nil {
		return err
	}
	type way struct {
		name  string
		count func() (keys int, sum int64, err error)
	}
	var ways []way
	if what.name != "set" {
		ways = []way{{"its length", func() (int, int64, error) {
			n, err := what.count(ctx, s.client, users)
			return 1, n, err
		}}}
	} else {
		for _, list := range listers {
			ways = append(ways, way{list.name, func() (int, int64, error) {
				keys, err := list.keys(ctx, s.client)
				if err != nil {
					return 0, 0, err
				}
				var sum int64
				for first := 0; first < len(keys); first += 1000 {
					pipe := s.client.Pipeline()
					var replies []*redis.IntCmd
					for _, key := range keys[first:min(first+1000, len(keys))] {
						replies = append(replies, pipe.SCard(ctx, key))
					}
					if _, err := pipe.Exec(ctx); err != nil {
						return 0, 0, err
					}
					for _, reply := range replies {
						sum += reply.Val()
					}
				}
				return len(keys), sum, nil
			}})
		}
	}
	for _, w := range ways {
		began := time.Now()
		keys, sum, err := w.count()
		if err != nil {
			return err
		}
		verdict := "all"
		if sum != int64(users) {
			verdict = fmt.Sprintf("%d are missing", int64(users)-sum)
		}
		fmt.Printf("| %s | %s | %s | %d | %d | %.2f | %s |\n", what.name, name, w.name, keys, sum, time.Since(began).Seconds(), verdict)
		if sum != int64(users) {
			return fmt.Errorf("%s by %s: %d of %d", what.name, w.name, sum, users)
		}
	}
	return nil
}

// countAll prints what every server counts of so many users in every structure.
func countAll(servers []string, only string, users, batch int) {
	fmt.Printf("Users: %d\n\n", users)
	fmt.Println("| structure | server | counted by | keys | users | seconds | |")
	fmt.Println("|---|---|---|---|---|---|---|")
	for _, what := range shapes {
		if !strings.Contains(what.name, only) {
			continue
		}
		for _, arg := range servers {
			name, binary, found := strings.Cut(arg, "=")
			if !found {
				name, binary = arg, arg
			}
			if err := counted(name, binary, what, users, batch); err != nil {
				log.Fatalf("%s, %s: %v", what.name, name, err)
			}
		}
	}
}

func main() {
	log.SetFlags(0)
	single := flag.Int("single", 200_000, "users stored one by one")
	many := flag.Int("many", 1_000_000, "users stored in batches")
	batch := flag.Int("batch", 10_000, "users of a batch")
	only := flag.String("only", "", "only rows whose name contains this")
	counts := flag.Int("counts", 0, "store so many users and count them again by KEYS, SCAN and lengths, in place of the measurements")
	flag.Usage = func() {
		log.Print("online [flags] name=binary ...: what storing who is online costs in each server; the first is the measure")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 || *batch < 1 || *single < 1 || *many < 1 {
		flag.Usage()
		os.Exit(2)
	}
	if *counts > 0 {
		countAll(flag.Args(), *only, *counts, *batch)
		return
	}
	writers := 4 * runtime.NumCPU()
	modes := []mode{
		{name: "one by one", writers: 1, batch: 1, users: *single},
		{name: fmt.Sprintf("%d at once", writers), writers: writers, batch: 1, users: *single},
		{name: fmt.Sprintf("batches of %d, %d at once", *batch, writers), writers: writers, batch: *batch, users: *many},
	}
	fmt.Println("| row | users | server | µs a user | server's CPU µs a user | ratio | bytes a user | ratio |")
	fmt.Println("|---|---|---|---|---|---|---|---|")
	for _, m := range modes {
		for _, what := range shapes {
			row := what.name + ", " + m.name
			if !strings.Contains(row, *only) {
				continue
			}
			var first result
			for at, arg := range flag.Args() {
				name, binary, found := strings.Cut(arg, "=")
				if !found {
					name, binary = arg, arg
				}
				r, err := measure(binary, what, m)
				if err != nil {
					log.Fatalf("%s, %s: %v", row, name, err)
				}
				if at == 0 {
					first = r
				}
				users := float64(m.users)
				fmt.Printf("| %s | %d | %s | %.2f | %.2f | %.2f | %.1f | %.2f |\n", row, m.users, name,
					float64(r.wall.Microseconds())/users, float64(r.cpu.Microseconds())/users,
					float64(r.cpu)/float64(max(first.cpu, time.Second/ticksBySecond)), float64(r.bytes)/users,
					float64(r.bytes)/float64(max(first.bytes, 1)))
			}
		}
	}
}
