package grpc

import (
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf16"

	"google.golang.org/grpc/metadata"

	"github.com/materpc/materpc"
)

// bizTrailer is how Kitex's gRPC transport sends a business error.
func bizTrailer(e *materpc.BizError) metadata.MD {
	md := metadata.Pairs(bizStatusKey, strconv.FormatInt(int64(e.BizStatusCode()), 10))
	if extra := e.BizExtra(); len(extra) > 0 {
		if text, err := json.Marshal(extra); err == nil {
			md.Set(bizExtraKey, asciiJSON(text))
		}
	}
	return md
}

// asciiJSON escapes what may not stand in a header. Every rune beyond ASCII of
// a JSON text is inside a string.
func asciiJSON(text []byte) string {
	var b strings.Builder
	escape := func(unit uint16) {
		const hex = "0123456789abcdef"
		b.WriteString(`\u`)
		for shift := 12; shift >= 0; shift -= 4 {
			b.WriteByte(hex[unit>>shift&15])
		}
	}
	for _, r := range string(text) {
		switch high, low := utf16.EncodeRune(r); {
		case r < 0x7f:
			b.WriteByte(byte(r))
		case high != '\uFFFD':
			escape(uint16(high))
			escape(uint16(low))
		default:
			escape(uint16(r))
		}
	}
	return b.String()
}
