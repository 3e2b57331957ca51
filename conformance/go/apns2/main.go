// Command apns2 is sideshow/apns2, sending what the test asks for.
//
// Arguments: host, port, certificate authority, signing key, key id, team id. A line is a notification, {"seq", "token",
// "topic", "payload", "id", "expiration", "collapse_id"}; with "token_age" its provider token is that many seconds old.
// For each comes a line with what apns2 made of the answer, {"seq", "status", "id", "reason", "gone"}, or with an "error".
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log"
	"net"
	"os"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v4"
	"github.com/sideshow/apns2"
	"github.com/sideshow/apns2/token"
	"golang.org/x/net/http2"
)

type request struct {
	Seq        int    `json:"seq"`
	Token      string `json:"token"`
	Topic      string `json:"topic"`
	Payload    string `json:"payload"`
	ID         string `json:"id"`
	Expiration int64  `json:"expiration"`
	CollapseID string `json:"collapse_id"`
	TokenAge   int64  `json:"token_age"`
}

type result struct {
	Seq    int    `json:"seq"`
	Status int    `json:"status,omitempty"`
	ID     string `json:"id,omitempty"`
	Reason string `json:"reason,omitempty"`
	Gone   int64  `json:"gone,omitempty"`
	Error  string `json:"error,omitempty"`
}

func main() {
	log.SetFlags(0)
	arguments := os.Args[1:]
	if len(arguments) != 6 {
		log.Fatal("usage: apns2 HOST PORT CA KEY KEY_ID TEAM_ID")
	}
	key, err := token.AuthKeyFromFile(arguments[3])
	if err != nil {
		log.Fatal(err)
	}
	authority, err := os.ReadFile(arguments[2])
	if err != nil {
		log.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		log.Fatalf("%s: no certificate", arguments[2])
	}
	fresh := &token.Token{AuthKey: key, KeyID: arguments[4], TeamID: arguments[5]}
	host := "https://" + net.JoinHostPort(arguments[0], arguments[1])
	client := newClient(fresh, host, roots)
	serve(client, func(age int64) *apns2.Client { return newClient(aged(fresh, age), host, roots) })
}

func newClient(credential *token.Token, host string, roots *x509.CertPool) *apns2.Client {
	client := apns2.NewTokenClient(credential)
	client.Host = host
	client.HTTPClient.Transport.(*http2.Transport).TLSClientConfig = &tls.Config{RootCAs: roots}
	return client
}

// aged returns a token issued so many seconds ago, which the library takes for a new one.
func aged(fresh *token.Token, age int64) *token.Token {
	claims := jwt.MapClaims{"iss": fresh.TeamID, "iat": time.Now().Unix() - age}
	signer := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	signer.Header = map[string]interface{}{"alg": "ES256", "kid": fresh.KeyID}
	bearer, err := signer.SignedString(fresh.AuthKey)
	if err != nil {
		log.Fatal(err)
	}
	old := &token.Token{AuthKey: fresh.AuthKey, KeyID: fresh.KeyID, TeamID: fresh.TeamID}
	old.IssuedAt, old.Bearer = time.Now().Unix(), bearer
	return old
}

// serve sends every line as it comes, many at a time.
func serve(client *apns2.Client, old func(age int64) *apns2.Client) {
	var output sync.Mutex
	write := func(value interface{}) {
		output.Lock()
		defer output.Unlock()
		if err := json.NewEncoder(os.Stdout).Encode(value); err != nil {
			log.Fatal(err)
		}
	}
	write(map[string]string{"client": "apns2"})
	var open sync.WaitGroup
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		var wanted request
		if err := json.Unmarshal(line, &wanted); err != nil {
			log.Fatal(err)
		}
		sender := client
		if wanted.TokenAge > 0 {
			sender = old(wanted.TokenAge)
		}
		open.Add(1)
		go func() {
			defer open.Done()
			write(send(sender, wanted))
		}()
	}
	open.Wait()
}

func send(client *apns2.Client, wanted request) result {
	response, err := client.Push(&apns2.Notification{
		DeviceToken: wanted.Token,
		Topic:       wanted.Topic,
		ApnsID:      wanted.ID,
		CollapseID:  wanted.CollapseID,
		Expiration:  time.Unix(wanted.Expiration, 0),
		Priority:    apns2.PriorityHigh,
		PushType:    apns2.PushTypeAlert,
		Payload:     wanted.Payload,
	})
	if err != nil {
		return result{Seq: wanted.Seq, Error: fmt.Sprint(err)}
	}
	answer := result{Seq: wanted.Seq, Status: response.StatusCode, ID: response.ApnsID, Reason: response.Reason}
	if !response.Timestamp.IsZero() {
		answer.Gone = response.Timestamp.UnixMilli()
	}
	return answer
}
