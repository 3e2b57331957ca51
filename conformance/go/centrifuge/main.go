// Command centrifuge is Centrifugo's Go SDK, doing what the test asks for. js/client.mjs is the same with the JavaScript
// SDK.
//
// Argument: {"url", "token", "tokens", "data", "channel", "channel_token", "delta", "join_leave", "format", "ping_delay_ms"};
// the format is "json" or "protobuf"; `tokens` are given one after the other when the SDK asks for a new one. It connects,
// subscribes to the channel, if there is one, and tells with a line what its handlers hear: {"on": "connecting" | "connected" |
// "disconnected" | "subscribed" | "unsubscribed" | "publication" | "join" | "leave", …}, and the last five with "server_"
// and {"channel"} about server-side subscriptions. From standard input it takes {"seq", "method", "data"}, an RPC, answered
// by {"seq", "data"} or {"seq", "error": its code}; {"seq", "do": "publish" | "history" | "presence" | "presence_stats", …},
// about its channel, answered by {"seq", "result"} or the error; and {"seq"} alone: it disconnects.
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
	URL          string          `json:"url"`
	Token        string          `json:"token"`
	Tokens       []string        `json:"tokens"`
	Data         json.RawMessage `json:"data"`
	Channel      string          `json:"channel"`
	ChannelToken string          `json:"channel_token"`
	Delta        string          `json:"delta"`
	JoinLeave    bool            `json:"join_leave"`
	Format       string          `json:"format"`
	PingDelayMS  int64           `json:"ping_delay_ms"`
}

type request struct {
	Seq     int             `json:"seq"`
	Method  string          `json:"method"`
	Do      string          `json:"do"`
	Data    json.RawMessage `json:"data"`
	Limit   int32           `json:"limit"`
	Reverse bool            `json:"reverse"`
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
	config := centrifuge.Config{
		Token:              wanted.Token,
		Data:               wanted.Data,
		MaxServerPingDelay: time.Duration(wanted.PingDelayMS) * time.Millisecond,
		MinReconnectDelay:  10 * time.Millisecond,
		MaxReconnectDelay:  reconnectDelayMax,
		HandshakeTimeout:   handshakeTimeout,
		ReadTimeout:        callTimeout,
	}
	if tokens := wanted.Tokens; len(tokens) > 0 {
		config.GetToken = func(centrifuge.ConnectionTokenEvent) (string, error) {
			write(line{"on": "token"})
			token := tokens[0]
			if len(tokens) > 1 {
				tokens = tokens[1:]
			}
			return token, nil
		}
	}
	client := newClient(wanted.URL, config)
	write(line{"client": "centrifuge-go"})
	listen(client)
	var subscription *centrifuge.Subscription
	if wanted.Channel != "" {
		subscription = subscribe(client, wanted)
	}
	if err := client.Connect(); err != nil {
		log.Fatal(err)
	}
	obey(client, subscription)
}

// listen tells what the SDK tells of the connection and of server-side subscriptions.
func listen(client *centrifuge.Client) {
	client.OnConnecting(func(event centrifuge.ConnectingEvent) {
		write(line{"on": "connecting", "code": event.Code})
	})
	client.OnConnected(func(centrifuge.ConnectedEvent) { write(line{"on": "connected"}) })
	client.OnDisconnected(func(event centrifuge.DisconnectedEvent) {
		write(line{"on": "disconnected", "code": event.Code})
	})
	client.OnSubscribed(func(event centrifuge.ServerSubscribedEvent) {
		write(line{"on": "server_subscribed", "channel": event.Channel, "recovered": event.Recovered})
	})
	client.OnUnsubscribed(func(event centrifuge.ServerUnsubscribedEvent) {
		write(line{"on": "server_unsubscribed", "channel": event.Channel})
	})
	client.OnPublication(func(event centrifuge.ServerPublicationEvent) {
		data := json.RawMessage(event.Data)
		write(line{"on": "server_publication", "channel": event.Channel, "offset": event.Offset, "data": data})
	})
}

// subscribe follows the channel and tells what the SDK tells of it.
func subscribe(client *centrifuge.Client, wanted arguments) *centrifuge.Subscription {
	subscription, err := client.NewSubscription(wanted.Channel, centrifuge.SubscriptionConfig{
		Token:               wanted.ChannelToken,
		Delta:               centrifuge.DeltaType(wanted.Delta),
		JoinLeave:           wanted.JoinLeave,
		MinResubscribeDelay: 10 * time.Millisecond,
		MaxResubscribeDelay: reconnectDelayMax,
	})
	if err != nil {
		log.Fatal(err)
	}
	subscription.OnSubscribed(func(event centrifuge.SubscribedEvent) {
		write(line{"on": "subscribed", "recovered": event.Recovered})
	})
	subscription.OnUnsubscribed(func(event centrifuge.UnsubscribedEvent) {
		write(line{"on": "unsubscribed", "code": event.Code})
	})
	subscription.OnPublication(func(event centrifuge.PublicationEvent) {
		write(line{"on": "publication", "offset": event.Offset, "data": json.RawMessage(event.Data)})
	})
	subscription.OnJoin(func(event centrifuge.JoinEvent) { write(line{"on": "join", "user": event.User}) })
	subscription.OnLeave(func(event centrifuge.LeaveEvent) { write(line{"on": "leave", "user": event.User}) })
	if err := subscription.Subscribe(); err != nil {
		log.Fatal(err)
	}
	return subscription
}

// obey does what the test says, until it says no more.
func obey(client *centrifuge.Client, subscription *centrifuge.Subscription) {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var wanted request
		if err := json.Unmarshal(lines.Bytes(), &wanted); err != nil {
			log.Fatal(err)
		}
		if wanted.Method == "" && wanted.Do == "" {
			if err := client.Disconnect(); err != nil {
				log.Fatal(err)
			}
			write(line{"seq": wanted.Seq})
			continue
		}
		answer, err := call(client, subscription, wanted)
		var refusal *centrifuge.Error
		switch {
		case err == nil:
			answer["seq"] = wanted.Seq
			write(answer)
		case errors.As(err, &refusal):
			write(line{"seq": wanted.Seq, "error": refusal.Code})
		default:
			log.Fatal(err)
		}
	}
}

func call(client *centrifuge.Client, subscription *centrifuge.Subscription, wanted request) (line, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	switch wanted.Do {
	case "publish":
		_, err := subscription.Publish(ctx, wanted.Data)
		return line{"result": line{}}, err
	case "history":
		found, err := subscription.History(ctx, centrifuge.WithHistoryLimit(wanted.Limit),
			centrifuge.WithHistoryReverse(wanted.Reverse))
		publications := []line{}
		for _, publication := range found.Publications {
			publications = append(publications, line{"offset": publication.Offset, "data": json.RawMessage(publication.Data)})
		}
		return line{"result": line{"publications": publications, "offset": found.Offset}}, err
	case "presence":
		found, err := subscription.Presence(ctx)
		users := []string{}
		for _, info := range found.Clients {
			users = append(users, info.User)
		}
		return line{"result": line{"users": users}}, err
	case "presence_stats":
		found, err := subscription.PresenceStats(ctx)
		return line{"result": line{"clients": found.NumClients, "users": found.NumUsers}}, err
	default:
		result, err := client.RPC(ctx, wanted.Method, wanted.Data)
		return line{"data": json.RawMessage(result.Data)}, err
	}
}
