package rabbitmq

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redrivehq/redrive/internal/broker/rabbitmq/rawamqp"
	"github.com/redrivehq/redrive/internal/rabbittest"
	"github.com/redrivehq/redrive/quarantine"
)

// authority signs certificates for the tests of this file.
type authority struct {
	root string // the file system in which the broker lives, "" for this one
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{root: os.Getenv(rabbittest.RootEnv), dir: t.TempDir()}
	if a.root != "" {
		var err error
		if a.dir, err = os.MkdirTemp(filepath.Join(a.root, "tmp"), "tls"); err != nil { //nolint:usetesting // the broker sees only its own root
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(a.dir) })
	}
	// The broker may run as another user.
	if err := os.Chmod(a.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	a.issue(t, "ca", true)
	return a
}

// issue writes NAME.pem and NAME-key.pem.
func (a *authority) issue(t *testing.T, name string, isCA bool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: isCA, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	if isCA {
		a.cert, a.key = template, key
	} else {
		template.KeyUsage = x509.KeyUsageDigitalSignature
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
		template.DNSNames, template.IPAddresses = []string{name + ".test"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	a.write(t, name+".pem", "CERTIFICATE", der)
	a.write(t, name+"-key.pem", "PRIVATE KEY", raw)
}

func (a *authority) write(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// inner is path as the broker has it.
func (a *authority) inner(name string) string { return strings.TrimPrefix(a.path(name), a.root) }

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	a.issue(t, "broker", false)
	a.issue(t, "client", false)
	stranger := newAuthority(t)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	node := rabbittest.Start(t, rabbittest.WithConfig(fmt.Sprintf("listeners.ssl.1 = %s\nssl_options.cacertfile = %s\nssl_options.certfile = %s\n"+
		"ssl_options.keyfile = %s\nssl_options.verify = verify_peer\nssl_options.fail_if_no_peer_cert = true\n",
		addr, a.inner("ca.pem"), a.inner("broker.pem"), a.inner("broker-key.pem"))))
	conf := mustParse(t, node.URL())
	conf.Hosts = []string{addr}
	conf.TLS = &TLS{CAFile: a.path("ca.pem"), CertFile: a.path("client.pem"), KeyFile: a.path("client-key.pem")}

	// The node is ready when its plain port is; the other one comes next.
	eventually(t, "the TLS port is open", func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})

	raw := rawamqp.Dial(t, node.URL())
	raw.Declare("dead")
	c := mustChannel(t, mustReleaser(t, conf), usual)
	if got := tally(publishAll(t, c, 200, toQueue("dead"))); got["confirmed"] != 200 {
		t.Errorf("results: %v", got)
	}
	s := mustSession(t, mustSource(t, conf), "dead", 200)
	if err := s.Settle(within(t), receipts(receive(t, s, 200))); err != nil {
		t.Error(err)
	}

	for name, change := range map[string]func(*TLS){
		"signed by a stranger": func(c *TLS) { c.CAFile = stranger.path("ca.pem") },
		"signed by nobody":     func(c *TLS) { c.CAFile = "" },
		"another name":         func(c *TLS) { c.ServerName = "other.test" },
		"no certificate in CA": func(c *TLS) { c.CAFile = a.path("client-key.pem") },
		"key of another":       func(c *TLS) { c.KeyFile = a.path("broker-key.pem") },
	} {
		files := *conf.TLS
		change(&files)
		bad := conf
		bad.TLS = &files
		if _, err := NewSource(within(t), bad); !errors.Is(err, quarantine.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
	named := conf
	named.TLS = &TLS{CAFile: a.path("ca.pem"), CertFile: a.path("client.pem"), KeyFile: a.path("client-key.pem"), ServerName: "broker.test"}
	mustSource(t, named)
	anonymous := conf
	anonymous.TLS = &TLS{CAFile: a.path("ca.pem")}
	// The broker refuses behind the handshake and closes at once. When our own
	// log-in meets the closed connection first, its refusal is lost with it.
	var refused bool
	for range 50 {
		_, err := NewSource(within(t), anonymous)
		if err == nil {
			t.Fatal("a client without a certificate was let in")
		}
		if refused = errors.Is(err, quarantine.ErrRefused); refused {
			break
		}
	}
	if !refused {
		t.Error("a client without a certificate is never told that it was refused")
	}
}
