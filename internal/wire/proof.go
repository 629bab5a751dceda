package wire

import (
	"net/url"
	"strings"
)

// Reasons of a refusal.
const (
	Draining   = "draining"   // the server shuts down; it ran nothing
	Overloaded = "overloaded" // the server is at its own limit
	Limited    = "limited"    // this caller is at its quota
)

// Proof is what only the gate of the server that was called can say: it echoes
// the nonce of the caller's own connection and names the instance.
type Proof struct {
	Nonce    string
	Reason   string // empty in an abort
	Instance string // empty when the server does not know its id
}

// Refusal returns the materpc-refused value: "<nonce>;<reason>;<instance id>".
func (p Proof) Refusal() string {
	return p.Nonce + ";" + p.Reason + ";" + url.PathEscape(p.Instance)
}

// ParseRefusal reads a materpc-refused value. Fields beyond the third are
// ignored.
func ParseRefusal(text string) (Proof, bool) {
	fields := strings.Split(text, ";")
	if len(fields) < 3 || fields[0] == "" || fields[1] == "" {
		return Proof{}, false
	}
	instance, err := url.PathUnescape(fields[2])
	if err != nil {
		return Proof{}, false
	}
	return Proof{Nonce: fields[0], Reason: fields[1], Instance: instance}, true
}
