package grpc

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// textsHold asks the grpc-go that this process is linked with whether it still
// says a refused stream in the texts that we know. It runs once a process, when
// the first such status has to be judged, over an in-memory pipe, in a few
// milliseconds; where it does not hold, only a gate's proof moves a call.
var textsHold = sync.OnceValue(func() bool { //nolint:gochecknoglobals // a fact about the linked grpc-go, the same for all
	return refusedText(rstRefusedStream) == unprocessedTexts[0] && refusedText(goAwayZero) == unprocessedTexts[1]
})

// HTTP/2 frames of the self-test: RFC 9113, sections 4.1, 6.4, 6.5, 6.8.
const (
	frameHeader   = 9
	frameHeaders  = 0x1
	frameReset    = 0x3
	frameSettings = 0x4
	frameGoAway   = 0x7
	refusedStream = 0x7
	prefaceLength = 24
	selfTestLimit = time.Second
)

func frame(kind byte, stream uint32, payload ...byte) []byte {
	f := make([]byte, frameHeader, frameHeader+len(payload))
	f[2], f[3] = byte(len(payload)), kind // payloads here are shorter than 256 bytes
	binary.BigEndian.PutUint32(f[5:], stream)
	return append(f, payload...)
}

func rstRefusedStream(stream uint32) []byte {
	return frame(frameReset, stream, 0, 0, 0, refusedStream)
}

func goAwayZero(uint32) []byte { return frame(frameGoAway, 0, make([]byte, 8)...) }

// refusedText makes one call to a server that answers every stream with
// refusal, and returns the message that grpc-go gives the caller.
func refusedText(refusal func(stream uint32) []byte) string {
	ctx, cancel := context.WithTimeout(context.Background(), selfTestLimit)
	defer cancel()
	var servers sync.WaitGroup
	defer servers.Wait()
	conn, err := stdgrpc.NewClient("passthrough:///self-test",
		stdgrpc.WithTransportCredentials(insecure.NewCredentials()), stdgrpc.WithDisableServiceConfig(), stdgrpc.WithDisableRetry(),
		stdgrpc.WithDefaultCallOptions(stdgrpc.MaxRetryRPCBufferSize(0)),
		stdgrpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			client, server := net.Pipe()
			servers.Go(func() { refuseStreams(server, refusal) })
			return client, nil
		}))
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }() // nothing of it is of interest
	err = conn.Invoke(ctx, "/materpc.selftest/Refuse", &emptypb.Empty{}, &emptypb.Empty{})
	return status.Convert(err).Message()
}

// refuseStreams speaks as much HTTP/2 as it takes to refuse.
func refuseStreams(conn net.Conn, refusal func(uint32) []byte) {
	defer func() { _ = conn.Close() }()
	if _, err := io.CopyN(io.Discard, conn, prefaceLength); err != nil {
		return
	}
	replies := make(chan []byte, 8)
	var writer sync.WaitGroup
	writer.Go(func() {
		for reply := range replies {
			if _, err := conn.Write(reply); err != nil {
				return
			}
		}
	})
	defer writer.Wait()
	defer close(replies)
	replies <- frame(frameSettings, 0)
	for header := make([]byte, frameHeader); ; {
		if _, err := io.ReadFull(conn, header); err != nil {
			return
		}
		length := int64(header[0])<<16 | int64(header[1])<<8 | int64(header[2])
		if _, err := io.CopyN(io.Discard, conn, length); err != nil {
			return
		}
		if header[3] == frameHeaders {
			select {
			case replies <- refusal(binary.BigEndian.Uint32(header[5:])):
			default: // more streams than one call can make
				return
			}
		}
	}
}
