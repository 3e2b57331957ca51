// Command gorush is appleboy/gorush as a peer of `tidings bench push`.
//
// Its sending is called as the workers of its queue call it, one request per language with all tokens in it, which is
// the form it is fastest in; its HTTP API and its queue are left out. Its host cannot be configured, so its transport
// is made to dial the given provider instead. It has one client, which opens another connection when its streams are
// used up. Its access log is at level "error": a line per notification is not asked of others either.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strconv"
	"sync"

	"github.com/appleboy/gorush/config"
	"github.com/appleboy/gorush/core"
	"github.com/appleboy/gorush/logx"
	"github.com/appleboy/gorush/notify"
	"github.com/appleboy/gorush/status"
	"golang.org/x/net/http2"

	"tidings.test/peers/load"
)

type sender struct {
	work   *load.Work
	config *config.ConfYaml
}

func main() {
	load.Serve("gorush", "github.com/appleboy/gorush", func(work *load.Work) (load.Sender, error) {
		settings, err := config.LoadConf()
		if err != nil {
			return nil, err
		}
		settings.Ios.Enabled, settings.Ios.Production = true, true
		settings.Stat.Engine = "memory"
		if err := logx.InitLog("error", "stderr", "error", "stderr"); err != nil {
			return nil, err
		}
		return &sender{work, settings}, status.InitAppStatus(settings)
	})
}

// Open makes gorush's client anew, with all its own settings but where it dials.
func (s *sender) Open(wanted load.Open, credentials *load.Credentials) error {
	if notify.ApnsClient != nil {
		notify.ApnsClient.CloseIdleConnections()
	}
	ios := &s.config.Ios
	ios.KeyPath, ios.KeyID, ios.TeamID = credentials.KeyPath, credentials.KeyID, credentials.TeamID
	if err := notify.InitAPNSClient(context.Background(), s.config); err != nil {
		return err
	}
	transport, ok := notify.ApnsClient.HTTPClient.Transport.(*http2.Transport)
	if !ok {
		return errors.New("gorush has another transport than it used to")
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(wanted.Port))
	transport.DialTLS = func(network, _ string, _ *tls.Config) (net.Conn, error) {
		return tls.Dial(network, address, credentials.TLS())
	}
	return nil
}

// Send hands over one request per language.
func (s *sender) Send(wanted load.Send) (int, error) {
	notify.MaxConcurrentIOSPushes = make(chan struct{}, wanted.Concurrency)
	tokens := make([][]string, len(s.work.Messages))
	for _, token := range s.work.Tokens[:wanted.Count] {
		language := load.Language(token)
		tokens[language] = append(tokens[language], token)
	}
	before := status.StatStorage.GetIosSuccess()
	failures := make([]error, len(tokens))
	var open sync.WaitGroup
	for language := range tokens {
		if len(tokens[language]) == 0 {
			continue
		}
		request := s.request(language, tokens[language], wanted.ID)
		open.Go(func() {
			response, err := notify.SendNotification(context.Background(), request, s.config)
			if err == nil && len(response.Logs) > 0 {
				err = errors.New(response.Logs[0].Error)
			}
			failures[language] = err
		})
	}
	open.Wait()
	return int(status.StatStorage.GetIosSuccess() - before), errors.Join(failures...)
}

func (s *sender) request(language int, tokens []string, id string) *notify.PushNotification {
	message := s.work.Messages[language]
	return &notify.PushNotification{
		Tokens:     tokens,
		Platform:   core.PlatFormIos,
		Topic:      s.work.Topic,
		Title:      message.Title,
		Message:    message.Body,
		Priority:   "high",
		PushType:   "alert",
		Expiration: &s.work.Expiration,
		ApnsID:     id,
		CollapseID: s.work.CollapseID,
		Sound:      "default",
		Data:       notify.D{"tidings": map[string]string{"event": s.work.Event}},
	}
}
