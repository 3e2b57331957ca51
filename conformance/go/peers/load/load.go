// Package load is how `tidings bench push` drives a peer: it says how many notifications to send, the peer says how
// long that took it.
//
// A peer is started with the authority of the provider's certificate, a signing key, its id, the id of its team, and a
// file: the Work. Its first line on standard output names it. Then every line of standard input is a command, answered
// by one line: `{"open": …}` makes new clients for a provider on a port of 127.0.0.1, whose authority and key are read
// then; `{"send": …}` sends.
package load

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/sideshow/apns2/token"
)

// Work is what all peers send alike.
type Work struct {
	Topic      string    `json:"topic"`
	CollapseID string    `json:"collapse_id"`
	Event      string    `json:"event"`
	Expiration int64     `json:"expiration"`
	Messages   []Message `json:"messages"`
	// Tokens in hexadecimal; the first byte says which of the messages a device gets.
	Tokens []string `json:"tokens"`
}

// Message is one language's text, and the payload that carries it.
type Message struct {
	Title   string `json:"title"`
	Body    string `json:"body"`
	Payload string `json:"payload"`
}

// Language is the message of a device.
func Language(deviceToken string) int {
	return int(deviceToken[1] - '0')
}

// Credentials are what the provider is shown, and what the provider is known by.
type Credentials struct {
	Roots   *x509.CertPool
	KeyPath string
	Key     *ecdsa.PrivateKey
	KeyID   string
	TeamID  string
}

// TLS trusts the provider alone, whatever name it is called by.
func (c *Credentials) TLS() *tls.Config {
	return &tls.Config{RootCAs: c.Roots, ServerName: "localhost", NextProtos: []string{"h2"}}
}

// Open asks for new clients; the connections of the old ones are closed.
type Open struct {
	Port        int `json:"port"`
	Connections int `json:"connections"`
}

// Send asks for a notification to each of the first so many tokens, with so many requests at once at most, all with
// one id.
type Send struct {
	Count       int    `json:"count"`
	Concurrency int    `json:"concurrency"`
	ID          string `json:"id"`
}

// Sender is the peer.
type Sender interface {
	Open(wanted Open, credentials *Credentials) error
	// Send says how many were accepted, and why another was not.
	Send(wanted Send) (accepted int, failure error)
}

type command struct {
	Open *Open `json:"open"`
	Send *Send `json:"send"`
}

type sent struct {
	Accepted   int     `json:"accepted"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
	Failure    string  `json:"failure,omitempty"`
}

// Serve does what it is told until the input ends.
func Serve(name, module string, make func(*Work) (Sender, error)) {
	log.SetFlags(0)
	if len(os.Args) != 6 {
		log.Fatalf("usage: %s CA KEY KEY_ID TEAM_ID WORK", name)
	}
	work, err := readWork(os.Args[5])
	if err != nil {
		log.Fatal(err)
	}
	sender, err := make(work)
	if err != nil {
		log.Fatal(err)
	}
	output := json.NewEncoder(os.Stdout)
	answer(output, map[string]string{"name": name, "version": version(module)})
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var told command
		if err := json.Unmarshal(line, &told); err != nil {
			log.Fatal(err)
		}
		switch {
		case told.Open != nil:
			credentials, err := readCredentials(os.Args[1:5])
			if err == nil {
				err = sender.Open(*told.Open, credentials)
			}
			if err != nil {
				log.Fatal(err)
			}
			answer(output, struct{}{})
		case told.Send != nil:
			answer(output, measure(sender, *told.Send))
		default:
			log.Fatalf("no command: %s", line)
		}
	}
}

func measure(sender Sender, wanted Send) sent {
	cpu, began := cpuSeconds(), time.Now()
	accepted, err := sender.Send(wanted)
	result := sent{Accepted: accepted, Seconds: time.Since(began).Seconds(), CPUSeconds: cpuSeconds() - cpu}
	if err != nil {
		result.Failure = err.Error()
	}
	return result
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

func readWork(path string) (*Work, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	work := &Work{}
	return work, json.Unmarshal(text, work)
}

func readCredentials(arguments []string) (*Credentials, error) {
	authority, err := os.ReadFile(arguments[0])
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s: no certificate", arguments[0])
	}
	key, err := token.AuthKeyFromFile(arguments[1])
	if err != nil {
		return nil, err
	}
	return &Credentials{Roots: roots, KeyPath: arguments[1], Key: key, KeyID: arguments[2], TeamID: arguments[3]}, nil
}

func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dependency := range info.Deps {
			if dependency.Path == module {
				return dependency.Version
			}
		}
	}
	return "unknown"
}

func answer(output *json.Encoder, value any) {
	if err := output.Encode(value); err != nil {
		log.Fatal(err)
	}
}
