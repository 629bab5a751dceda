package grpc

import "testing"

func TestTextsOfRefusedStreams(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		refusal func(uint32) []byte
		want    string
	}{
		"RST_STREAM(REFUSED_STREAM)": {rstRefusedStream, unprocessedTexts[0]},
		"GOAWAY below the stream":    {goAwayZero, unprocessedTexts[1]},
	} {
		if got := refusedText(test.refusal); got != test.want {
			t.Errorf("%s: grpc-go says %q, want %q", name, got, test.want)
		}
	}
	if !textsHold() {
		t.Error("the self-test does not hold")
	}
}
