// Command gocent is Centrifugo's Go library for the server API, doing what the test asks for.
//
// Arguments: the address of the API, the key. From standard input it takes {"seq", "method", "params"}: a method of the
// API with the parameters that the library has. It answers {"seq", "result"}, {"seq", "error": {"code", "message"}} if the
// API refused, or {"seq", "status"} if the HTTP status is not 200. The method "pipe" has a list of publications as
// {"commands"}; they go in one request.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/centrifugal/gocent/v3"
)

const (
	callTimeout  = 20 * time.Second
	lineBytesMax = 1 << 20
)

type params struct {
	Channel      string                 `json:"channel"`
	Channels     []string               `json:"channels"`
	Data         json.RawMessage        `json:"data"`
	SkipHistory  bool                   `json:"skip_history"`
	User         string                 `json:"user"`
	Client       string                 `json:"client"`
	Info         json.RawMessage        `json:"info"`
	RecoverSince *gocent.StreamPosition `json:"recover_since"`
	Whitelist    []string               `json:"whitelist"`
	Disconnect   *gocent.Disconnect     `json:"disconnect"`
	Limit        int                    `json:"limit"`
	Since        *gocent.StreamPosition `json:"since"`
	Reverse      bool                   `json:"reverse"`
	Pattern      string                 `json:"pattern"`
	Commands     []params               `json:"commands"`
}

type request struct {
	Seq    int    `json:"seq"`
	Method string `json:"method"`
	Params params `json:"params"`
}

func main() {
	log.SetFlags(0)
	client := gocent.New(gocent.Config{Addr: os.Args[1], Key: os.Args[2]})
	output := json.NewEncoder(os.Stdout)
	write := func(line map[string]any) {
		if err := output.Encode(line); err != nil {
			log.Fatal(err)
		}
	}
	write(map[string]any{"library": "gocent"})
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		var wanted request
		if err := json.Unmarshal(lines.Bytes(), &wanted); err != nil {
			log.Fatal(err)
		}
		write(answer(client, wanted))
	}
}

func answer(client *gocent.Client, wanted request) map[string]any {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	result, err := call(ctx, client, wanted.Method, wanted.Params)
	var refusal *gocent.Error
	var status gocent.ErrStatusCode
	switch {
	case err == nil:
		return map[string]any{"seq": wanted.Seq, "result": result}
	case errors.As(err, &refusal):
		return map[string]any{"seq": wanted.Seq, "error": refusal}
	case errors.As(err, &status):
		return map[string]any{"seq": wanted.Seq, "status": status.Code}
	default:
		log.Fatal(err)
		return nil
	}
}

func call(ctx context.Context, client *gocent.Client, method string, p params) (any, error) {
	done := struct{}{}
	switch method {
	case "publish":
		return client.Publish(ctx, p.Channel, p.Data, gocent.WithSkipHistory(p.SkipHistory))
	case "broadcast":
		return client.Broadcast(ctx, p.Channels, p.Data, gocent.WithSkipHistory(p.SkipHistory))
	case "subscribe":
		return done, client.Subscribe(ctx, p.Channel, p.User, gocent.WithSubscribeClient(p.Client),
			gocent.WithSubscribeInfo(p.Info), gocent.WithSubscribeData(p.Data), gocent.WithRecoverSince(p.RecoverSince))
	case "unsubscribe":
		return done, client.Unsubscribe(ctx, p.Channel, p.User, gocent.WithUnsubscribeClient(p.Client))
	case "disconnect":
		return done, client.Disconnect(ctx, p.User, gocent.WithDisconnectClient(p.Client),
			gocent.WithDisconnect(p.Disconnect), gocent.WithDisconnectClientWhitelist(p.Whitelist))
	case "presence":
		return client.Presence(ctx, p.Channel)
	case "presence_stats":
		return client.PresenceStats(ctx, p.Channel)
	case "history":
		return client.History(ctx, p.Channel, gocent.WithLimit(p.Limit), gocent.WithSince(p.Since),
			gocent.WithReverse(p.Reverse))
	case "history_remove":
		return done, client.HistoryRemove(ctx, p.Channel)
	case "channels":
		return client.Channels(ctx, gocent.WithPattern(p.Pattern))
	case "info":
		return client.Info(ctx)
	case "pipe":
		pipe := client.Pipe()
		for _, command := range p.Commands {
			if err := pipe.AddPublish(command.Channel, command.Data); err != nil {
				return nil, err
			}
		}
		return client.SendPipe(ctx, pipe)
	default:
		return nil, fmt.Errorf("gocent has no method %q", method)
	}
}
