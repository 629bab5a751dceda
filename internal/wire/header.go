package wire

import (
	"net/url"
	"strings"
)

// The metadata keys of materpc's own fields. docs/grpc.md, "Moves".
const (
	HeaderKey  = "materpc"
	RefusedKey = "materpc-refused"
	AbortedKey = "materpc-aborted"
)

// MaxHeader is the longest request header that is sent or read, in bytes.
const MaxHeader = 128

const version = "1"

// Header is materpc's request header: "1;<caller>;<nonce>[;c=<cohort>]".
type Header struct {
	Caller string
	Nonce  string
	Cohort string
}

// String returns the header as it travels: printable ASCII, caller and cohort
// percent-encoded. A caller too long for MaxHeader is cut; nonce and cohort
// stay whole.
func (h Header) String() string {
	tail := ";" + h.Nonce
	if h.Cohort != "" {
		tail += ";c=" + url.PathEscape(h.Cohort)
	}
	room := MaxHeader - len(version) - 1 - len(tail)
	return version + ";" + escapeWithin(h.Caller, room) + tail
}

// escapeWithin percent-encodes s, dropping whole runes at the end until it fits.
func escapeWithin(s string, room int) string {
	escaped := url.PathEscape(s)
	for runes := []rune(s); len(escaped) > room && len(runes) > 0; {
		runes = runes[:len(runes)-1]
		escaped = url.PathEscape(string(runes))
	}
	return escaped
}

// ParseHeader reads a request header. Unknown fields are ignored; an unknown
// version, an oversized or a malformed header is as if absent.
func ParseHeader(text string) (Header, bool) {
	if len(text) > MaxHeader {
		return Header{}, false
	}
	fields := strings.Split(text, ";")
	if len(fields) < 3 || fields[0] != version || fields[2] == "" {
		return Header{}, false
	}
	caller, err := url.PathUnescape(fields[1])
	if err != nil {
		return Header{}, false
	}
	h := Header{Caller: caller, Nonce: fields[2]}
	for _, field := range fields[3:] {
		if value, ok := strings.CutPrefix(field, "c="); ok {
			if h.Cohort, err = url.PathUnescape(value); err != nil {
				return Header{}, false
			}
		}
	}
	return h, true
}
