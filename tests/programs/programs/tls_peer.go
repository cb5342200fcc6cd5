// TLS by Go's library, for tests of TLS by another one. `tls_peer server CERTIFICATE KEY` prints its port and echoes what
// it gets until the client ends. `tls_peer client PORT ROOTS`: a connection for each line of standard input. Prints a
// line of JSON for each connection: what was agreed, and the hash of what came.
package main

import (
	"bufio"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

const deadline = 60 * time.Second

type wish struct {
	Version  uint16
	Cipher   uint16 // of TLS 1.2; that of 1.3 is Go's choice
	File     string // what to send
	Pieces   []int  // in writes of these sizes, in turn
	Growing  bool   // records that grow: Go begins with small ones, unless it is told not to
	AtOnce   bool   // reads while it sends
}

type told struct {
	Version, Cipher uint16
	Resumed         bool
	Bytes           int
	Sha256, Error   string
}

func say(t told, err error) {
	if err != nil {
		t.Error = err.Error()
	}
	line, _ := json.Marshal(t)
	fmt.Println(string(line))
}

func send(c *tls.Conn, data []byte, pieces []int) error {
	for turn := 0; len(data) > 0; turn++ {
		size := pieces[turn%len(pieces)]
		if size > len(data) {
			size = len(data)
		}
		if _, err := c.Write(data[:size]); err != nil {
			return err
		}
		data = data[size:]
	}
	return c.CloseWrite()
}

func exchange(c *tls.Conn, w wish) (t told, err error) {
	data, err := os.ReadFile(w.File)
	if err != nil {
		return t, err
	}
	if err = c.Handshake(); err != nil {
		return t, err
	}
	state := c.ConnectionState()
	t = told{Version: state.Version, Cipher: state.CipherSuite, Resumed: state.DidResume}
	sent := make(chan error, 1)
	if w.AtOnce {
		go func() { sent <- send(c, data, w.Pieces) }()
	} else {
		sent <- send(c, data, w.Pieces)
	}
	came, err := io.ReadAll(c)
	if err == nil {
		err = <-sent
	}
	sum := sha256.Sum256(came)
	t.Bytes, t.Sha256 = len(came), hex.EncodeToString(sum[:])
	return t, err
}

func client(port, roots string) {
	text, err := os.ReadFile(roots)
	if err != nil {
		panic(err)
	}
	pool, sessions := x509.NewCertPool(), tls.NewLRUClientSessionCache(8)
	pool.AppendCertsFromPEM(text)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var w wish
		if err := json.Unmarshal(lines.Bytes(), &w); err != nil {
			panic(err)
		}
		config := &tls.Config{RootCAs: pool, ServerName: "localhost", ClientSessionCache: sessions,
			MinVersion: w.Version, MaxVersion: w.Version, CipherSuites: []uint16{w.Cipher},
			DynamicRecordSizingDisabled: !w.Growing}
		plain, err := net.DialTimeout("tcp", "127.0.0.1:"+port, deadline)
		if err != nil {
			say(told{}, err)
			continue
		}
		plain.SetDeadline(time.Now().Add(deadline))
		c := tls.Client(plain, config)
		say(exchange(c, w))
		c.Close()
	}
}

func echo(plain net.Conn, config *tls.Config) (t told, err error) {
	plain.SetDeadline(time.Now().Add(deadline))
	c := tls.Server(plain, config)
	defer c.Close()
	if err = c.Handshake(); err != nil {
		return t, err
	}
	state := c.ConnectionState()
	t = told{Version: state.Version, Cipher: state.CipherSuite, Resumed: state.DidResume}
	sum := sha256.New()
	count, err := io.Copy(io.MultiWriter(c, sum), c)
	t.Bytes, t.Sha256 = int(count), hex.EncodeToString(sum.Sum(nil))
	return t, err
}

func server(certificate, key string) {
	own, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		panic(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	config := &tls.Config{Certificates: []tls.Certificate{own}}
	for {
		plain, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		say(echo(plain, config))
	}
}

func main() {
	if os.Args[1] == "server" {
		server(os.Args[2], os.Args[3])
	} else {
		client(os.Args[2], os.Args[3])
	}
}
