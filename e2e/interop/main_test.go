package interop_test

import (
	"fmt"
	"io"
	"os"
	"testing"

	"google.golang.org/grpc/grpclog"
)

func TestMain(m *testing.M) {
	// Before the first use of grpc-go: its logger is not guarded.
	grpclog.SetLoggerV2(fatalLogger{grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard)})
	os.Exit(m.Run())
}

// failure is what an official case reports with Fatal, which would end the
// process and with it all other tests.
type failure string

// fatalLogger turns Fatal into a panic of failure, which the test recovers.
type fatalLogger struct{ grpclog.LoggerV2 }

func (fatalLogger) Fatal(args ...any)                 { panic(failure(fmt.Sprint(args...))) }
func (fatalLogger) Fatalln(args ...any)               { panic(failure(fmt.Sprintln(args...))) }
func (fatalLogger) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }

// run runs an official case and fails t with what it reports.
func run(t *testing.T, official func()) {
	t.Helper()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			t.Fatal(string(p))
		default:
			panic(p)
		}
	}()
	official()
}
