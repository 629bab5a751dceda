package interop_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc/e2e/interop"
	"github.com/materpc/materpc/transport/grpc"
)

var grpcurlTool = interop.Tool{Package: "github.com/fullstorydev/grpcurl/cmd/grpcurl", Version: "v1.9.4"}

// grpcurl runs the tool and returns what it printed.
func grpcurl(t *testing.T, args ...string) []byte {
	t.Helper()
	program, err := grpcurlTool.Path(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, append([]string{"-plaintext", "-emit-defaults"}, args...)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("grpcurl %q: %v\n%s", args, err, stderr.Bytes())
	}
	return stdout.Bytes()
}

const greeterMethods = "hello.v1.Greeter.Chat hello.v1.Greeter.CollectNames hello.v1.Greeter.ListHellos hello.v1.Greeter.SayHello"

// reflections counts the streams of both versions of reflection. With old it
// answers like a server of old: grpcurl turns to v1alpha only then.
type reflections struct {
	old       bool
	v1, alpha atomic.Int64
}

func (r *reflections) intercept(srv any, stream stdgrpc.ServerStream, info *stdgrpc.StreamServerInfo, next stdgrpc.StreamHandler) error {
	switch {
	case strings.HasPrefix(info.FullMethod, "/grpc.reflection.v1alpha."):
		r.alpha.Add(1)
	case r.old:
		return status.Error(codes.Unimplemented, "a server of old")
	default:
		r.v1.Add(1)
	}
	return next(srv, stream)
}

func TestGrpcurlLists(t *testing.T) {
	for _, old := range []bool{false, true} {
		t.Run(map[bool]string{false: "v1", true: "v1alpha"}[old], func(t *testing.T) {
			used := &reflections{old: old}
			g := startGreeter(t, 0, 0, grpc.StreamInterceptor(used.intercept))
			services := strings.Join(strings.Fields(string(grpcurl(t, g.addr, "list"))), " ")
			if want := "grpc.health.v1.Health grpc.reflection.v1.ServerReflection grpc.reflection.v1alpha.ServerReflection hello.v1.Greeter"; services != want {
				t.Errorf("services\n%s, want\n%s", services, want)
			}
			methods := strings.Join(strings.Fields(string(grpcurl(t, g.addr, "list", "hello.v1.Greeter"))), " ")
			if methods != greeterMethods {
				t.Errorf("methods\n%s, want\n%s", methods, greeterMethods)
			}
			if v1, alpha := used.v1.Load() > 0, used.alpha.Load() > 0; v1 == old || alpha != old {
				t.Errorf("v1 used: %v, v1alpha used: %v", v1, alpha)
			}
		})
	}
}

func TestGrpcurlCalls(t *testing.T) {
	type message = map[string]any
	hello := func(names string) message { return message{"message": "Hello, " + names + "!", "server": "one"} }
	collected := hello("Ann, Bob")
	collected["count"] = 2.0
	g := startGreeter(t, 0, 0)
	for _, test := range []struct {
		method string
		data   string
		want   []message
	}{
		{"SayHello", `{"name":"Ann"}`, []message{hello("Ann")}},
		{"ListHellos", `{"name":"Ann","count":3}`, []message{hello("Ann"), hello("Ann"), hello("Ann")}},
		{"CollectNames", `{"name":"Ann"} {"name":"Bob"}`, []message{collected}},
		{"Chat", `{"name":"Ann"} {"name":"Bob"}`, []message{hello("Ann"), hello("Bob")}},
	} {
		t.Run(test.method, func(t *testing.T) {
			out := json.NewDecoder(bytes.NewReader(grpcurl(t, "-d", test.data, g.addr, "hello.v1.Greeter/"+test.method)))
			var got []message
			for {
				var m message
				err := out.Decode(&m)
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, m)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
