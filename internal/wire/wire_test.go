package wire_test

import (
	"strings"
	"testing"

	"github.com/materpc/materpc/internal/wire"
)

func TestHeaderRoundTrip(t *testing.T) {
	t.Parallel()
	for _, h := range []wire.Header{
		{Caller: "orders", Nonce: "n1"},
		{Caller: "", Nonce: "n1"},
		{Caller: "a;b %/ü", Nonce: "n2", Cohort: "beta;1"},
	} {
		text := h.String()
		got, ok := wire.ParseHeader(text)
		if !ok || got != h {
			t.Errorf("ParseHeader(%q) = %+v, %v; want %+v", text, got, ok, h)
		}
	}
}

func TestHeaderIsBoundedPrintableASCII(t *testing.T) {
	t.Parallel()
	h := wire.Header{Caller: strings.Repeat("größe;", 100), Nonce: "0123456789abcdef", Cohort: "c"}
	text := h.String()
	if len(text) > wire.MaxHeader {
		t.Errorf("header of %d bytes, want at most %d", len(text), wire.MaxHeader)
	}
	for _, b := range []byte(text) {
		if b < 0x20 || b > 0x7e {
			t.Fatalf("byte %#x in %q", b, text)
		}
	}
	got, ok := wire.ParseHeader(text)
	if !ok || got.Nonce != h.Nonce || got.Cohort != h.Cohort || !strings.HasPrefix(h.Caller, got.Caller) {
		t.Errorf("cut header reads as %+v, %v", got, ok)
	}
}

func TestHeaderAsIfAbsent(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty": "", "unknown version": "2;orders;n", "no nonce": "1;orders", "empty nonce": "1;orders;",
		"bad escape": "1;%zz;n", "oversized": "1;" + strings.Repeat("x", 200) + ";n",
	} {
		if h, ok := wire.ParseHeader(text); ok {
			t.Errorf("%s: ParseHeader(%q) = %+v, want none", name, text, h)
		}
	}
	if h, ok := wire.ParseHeader("1;orders;n;x=1;c=blue"); !ok || h.Cohort != "blue" {
		t.Errorf("unknown field: %+v, %v", h, ok)
	}
}

func TestRefusalRoundTrip(t *testing.T) {
	t.Parallel()
	p := wire.Proof{Nonce: "n", Reason: wire.Draining, Instance: "host;1/ü"}
	if got, ok := wire.ParseRefusal(p.Refusal()); !ok || got != p {
		t.Errorf("got %+v, %v", got, ok)
	}
	for _, text := range []string{"", "n", "n;draining", ";draining;id", "n;;id", "n;draining;%zz"} {
		if got, ok := wire.ParseRefusal(text); ok {
			t.Errorf("ParseRefusal(%q) = %+v, want none", text, got)
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add("1;orders;n;c=blue")
	f.Add("1;%41;n")
	f.Fuzz(func(t *testing.T, text string) {
		h, ok := wire.ParseHeader(text)
		if !ok {
			return
		}
		again, ok := wire.ParseHeader(wire.Header{Nonce: h.Nonce, Cohort: ""}.String())
		if !ok && !strings.Contains(h.Nonce, ";") && len(h.Nonce) < 100 {
			t.Errorf("%q reads as %+v, which does not survive: %+v", text, h, again)
		}
	})
}
