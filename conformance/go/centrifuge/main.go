// Command centrifuge is Centrifugo's Go SDK, doing what the test asks for. js/client.mjs is the same with the JavaScript
// SDK.
//
// Argument: {"url", "token", "data", "channel", "format", "ping_delay_ms"}; the format is
// "json" or "protobuf". It connects, subscribes to the channel and tells with a
// line what its handlers hear: {"on": "connecting" | "connected" | "subscribed" | "publication" | "disconnected", …}. From
// standard input it takes {"seq", "method", "data"}, a call, answered by {"seq", "data"} or {"seq", "error": its code}, and
// {"seq"} alone: it disconnects.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"log"
	"os"
	"sync"
	"time"

	"github.com/centrifugal/centrifuge-go"
)

const (
	reconnectDelayMax = 100 * time.Millisecond
	handshakeTimeout  = 10 * time.Second
	callTimeout       = 20 * time.Second
)

type arguments struct {
	URL         string          `json:"url"`
	Token       string          `json:"token"`
	Data        json.RawMessage `json:"data"`
	Channel     string          `json:"channel"`
	Format      string          `json:"format"`
	PingDelayMS int64           `json:"ping_delay_ms"`
}

type request struct {
	Seq    int             `json:"seq"`
	Method string          `json:"method"`
	Data   json.RawMessage `json:"data"`
}

type line map[string]any

var output sync.Mutex

func write(value line) {
	output.Lock()
	defer output.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
		log.Fatal(err)
	}
}

func main() {
	log.SetFlags(0)
	var wanted arguments
	if err := json.Unmarshal([]byte(os.Args[1]), &wanted); err != nil {
		log.Fatal(err)
	}
	newClient := centrifuge.NewJsonClient
	if wanted.Format == "protobuf" {
		newClient = centrifuge.NewProtobufClient
	}
	client := newClient(wanted.URL, centrifuge.Config{
		Token:              wanted.Token,
		Data:               wanted.Data,
		MaxServerPingDelay: time.Duration(wanted.PingDelayMS) * time.Millisecond,
		MinReconnectDelay:  10 * time.Millisecond,
		MaxReconnectDelay:  reconnectDelayMax,
		HandshakeTimeout:   handshakeTimeout,
		ReadTimeout:        callTimeout,
	})
	write(line{"client": "centrifuge-go"})
	listen(client, wanted.Channel)
	if err := client.Connect(); err != nil {
		log.Fatal(err)
	}
	obey(client)
}

// listen tells what the SDK tells.
func listen(client *centrifuge.Client, channel string) {
	client.OnConnecting(func(event centrifuge.ConnectingEvent) {
		write(line{"on": "connecting", "code": event.Code})
	})
	client.OnConnected(func(centrifuge.ConnectedEvent) { write(line{"on": "connected"}) })
	client.OnDisconnected(func(event centrifuge.DisconnectedEvent) {
		write(line{"on": "disconnected", "code": event.Code})
	})
	subscription, err := client.NewSubscription(channel, centrifuge.SubscriptionConfig{
		MinResubscribeDelay: 10 * time.Millisecond,
		MaxResubscribeDelay: reconnectDelayMax,
	})
	if err != nil {
		log.Fatal(err)
	}
	subscription.OnSubscribed(func(event centrifuge.SubscribedEvent) {
		write(line{"on": "subscribed", "recovered": event.Recovered})
	})
	subscription.OnPublication(func(event centrifuge.PublicationEvent) {
		write(line{"on": "publication", "offset": event.Offset, "data": json.RawMessage(event.Data)})
	})
	if err := subscription.Subscribe(); err != nil {
		log.Fatal(err)
	}
}

// obey does what the test says, until it says no more.
func obey(client *centrifuge.Client) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var wanted request
		if err := json.Unmarshal(lines.Bytes(), &wanted); err != nil {
			log.Fatal(err)
		}
		if wanted.Method == "" {
			if err := client.Disconnect(); err != nil {
				log.Fatal(err)
			}
			write(line{"seq": wanted.Seq})
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		result, err := client.RPC(ctx, wanted.Method, wanted.Data)
		cancel()
		var refusal *centrifuge.Error
		switch {
		case err == nil:
			write(line{"seq": wanted.Seq, "data": json.RawMessage(result.Data)})
		case errors.As(err, &refusal):
			write(line{"seq": wanted.Seq, "error": refusal.Code})
		default:
			log.Fatal(err)
		}
	}
}
