// Command apns2 is sideshow/apns2 as a peer of `tidings bench push`.
//
// One client and thus one connection each for as many as are asked for (a client opens another when its streams are
// used up), with goroutines that send one notification after the other.
package main

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sideshow/apns2"
	"github.com/sideshow/apns2/token"
	"golang.org/x/net/http2"

	"tidings.test/peers/load"
)

type sender struct {
	work     *load.Work
	payloads [][]byte
	clients  []*apns2.Client
}

func main() {
	load.Serve("apns2", "github.com/sideshow/apns2", func(work *load.Work) (load.Sender, error) {
		made := &sender{work: work}
		for _, message := range work.Messages {
			made.payloads = append(made.payloads, []byte(message.Payload))
		}
		return made, nil
	})
}

// Open makes the clients; they connect with the first notification.
func (s *sender) Open(wanted load.Open, credentials *load.Credentials) error {
	for _, client := range s.clients {
		client.CloseIdleConnections()
	}
	s.clients = nil
	bearer := &token.Token{AuthKey: credentials.Key, KeyID: credentials.KeyID, TeamID: credentials.TeamID}
	for range wanted.Connections {
		client := apns2.NewTokenClient(bearer)
		client.Host = "https://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(wanted.Port))
		client.HTTPClient.Transport.(*http2.Transport).TLSClientConfig = credentials.TLS()
		s.clients = append(s.clients, client)
	}
	return nil
}

// Send shares the notifications out among the goroutines, and those among the clients.
func (s *sender) Send(wanted load.Send) (int, error) {
	var next, accepted atomic.Int64
	var failure atomic.Pointer[error]
	var open sync.WaitGroup
	for worker := range min(wanted.Concurrency, wanted.Count) {
		client := s.clients[worker%len(s.clients)]
		open.Go(func() {
			for index := next.Add(1) - 1; index < int64(wanted.Count); index = next.Add(1) - 1 {
				if err := s.push(client, s.work.Tokens[index], wanted.ID); err != nil {
					failure.CompareAndSwap(nil, &err)
				} else {
					accepted.Add(1)
				}
			}
		})
	}
	open.Wait()
	if err := failure.Load(); err != nil {
		return int(accepted.Load()), *err
	}
	return int(accepted.Load()), nil
}

func (s *sender) push(client *apns2.Client, deviceToken, id string) error {
	response, err := client.Push(&apns2.Notification{
		DeviceToken: deviceToken,
		Topic:       s.work.Topic,
		ApnsID:      id,
		CollapseID:  s.work.CollapseID,
		Expiration:  time.Unix(s.work.Expiration, 0),
		Priority:    apns2.PriorityHigh,
		PushType:    apns2.PushTypeAlert,
		Payload:     s.payloads[load.Language(deviceToken)],
	})
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%d %s", response.StatusCode, response.Reason)
	}
	return nil
}
