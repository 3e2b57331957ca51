// Command porcupine checks that a history of a durable channel is linearizable.
//
// It reads JSON from standard input: a list of operations. Each has the times of its call and its return, in nanoseconds on one
// clock; "append" has the offset that the answer named, "read" the offset of the last publication that the reader was told.
// Exit code 0: there is an order of all operations, each at some moment between its call and its return, in which each append
// gets the next offset and each read sees the last one. 1: there is none, or it was not found in time.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Kind   string `json:"kind"`
	Call   int64  `json:"call"`
	Return int64  `json:"return"`
	Offset uint64 `json:"offset"`
}

// channel is a channel as a number: how many publications it has.
var channel = porcupine.Model{
	Init: func() any { return uint64(0) },
	Step: func(state, input, output any) (bool, any) {
		length, offset := state.(uint64), output.(uint64)
		if input.(string) == "append" {
			return offset == length+1, length + 1
		}
		return offset == length, length
	},
}

func main() {
	var history []operation
	if err := json.NewDecoder(os.Stdin).Decode(&history); err != nil {
		fmt.Fprintln(os.Stderr, "the history cannot be read:", err)
		os.Exit(1)
	}
	operations := make([]porcupine.Operation, len(history))
	for index, one := range history {
		if one.Kind != "append" && one.Kind != "read" || one.Return < one.Call {
			fmt.Fprintln(os.Stderr, "not an operation:", one)
			os.Exit(1)
		}
		operations[index] = porcupine.Operation{
			ClientId: index, Input: one.Kind, Call: one.Call, Output: one.Offset, Return: one.Return,
		}
	}
	result := porcupine.CheckOperationsTimeout(channel, operations, time.Minute)
	fmt.Println(result, len(operations), "operations")
	if result != porcupine.Ok {
		os.Exit(1)
	}
}
