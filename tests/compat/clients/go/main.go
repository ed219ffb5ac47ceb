// The Go client program: reads commands from standard input, see README.md of the folder above.
package main

import (
	"bufio"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type words map[string]string

func (w words) text(key, otherwise string) string {
	if value, found := w[key]; found {
		return value
	}
	return otherwise
}

func (w words) number(key string, otherwise int) int {
	value, err := strconv.Atoi(w.text(key, strconv.Itoa(otherwise)))
	if err != nil {
		return otherwise
	}
	return value
}

type row map[string]interface{}

var output sync.Mutex

// write prints one row; rows of several goroutines stay whole.
func write(w words, kind string, members row) {
	if members == nil {
		members = row{}
	}
	members["id"], members["type"] = w["id"], kind
	line, _ := json.Marshal(members)
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

func writeError(w words, err error) {
	write(w, "error", row{"why": err.Error()})
}

func parse(line string) (string, words) {
	parts := strings.Fields(line)
	result := words{}
	for _, part := range parts[1:] {
		key, value, _ := strings.Cut(part, "=")
		result[key] = value
	}
	return parts[0], result
}

func (w words) namesrv() []string {
	return strings.Split(w["namesrv"], ";")
}

func main() {
	rlog.SetLogLevel("warn")
	senders, receivers := map[string]*sender{}, map[string]*receiver{}
	transactors := map[string]*transactor{}
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		verb, w := parse(input.Text())
		id := w["id"]
		switch verb {
		case "send":
			senders[id] = &sender{words: w}
			go senders[id].run()
		case "stop":
			senders[id].stop()
		case "subscribe":
			receivers[id] = &receiver{words: w}
			go receivers[id].start() // seconds; other commands do not wait for it
		case "leave":
			go receivers[id].leave()
			delete(receivers, id)
		case "transact":
			transactors[id] = &transactor{words: w}
			go transactors[id].run()
		case "resign":
			go transactors[id].resign()
			delete(transactors, id)
		default:
			write(w, "error", row{"why": "unknown command " + verb})
		}
	}
	for _, each := range senders {
		each.stop()
	}
	for _, each := range receivers {
		each.leave()
	}
	for _, each := range transactors {
		each.resign()
	}
}
