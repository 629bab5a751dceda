package materpc_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
)

// TestBizErrorText: Kitex's text, said once, and never nothing.
func TestBizErrorText(t *testing.T) {
	t.Parallel()
	// What a client makes of the status of a wrapped error, which grpc-go gives
	// the text of the whole.
	wrapped := status.Convert(fmt.Errorf("stock: %w", materpc.NewBizError(7, "seven")))
	for name, test := range map[string]struct {
		err  *materpc.BizError
		want string
	}{
		"plain":            {materpc.NewBizError(7, "seven"), "biz error: code=7, msg=seven"},
		"wrapped and sent": {materpc.NewBizError(7, "x").WithStatus(wrapped), "stock: biz error: code=7, msg=seven"},
		"another's code":   {materpc.NewBizError(7, "biz error: code=70, msg=x"), "biz error: code=7, msg=biz error: code=70, msg=x"},
		"no message":       {materpc.NewBizError(7, ""), "biz error: code=7, msg=business error 7"},
		"no code":          {materpc.NewBizError(0, "none"), "biz error: code=0 (0 is no business code, readers take it for success), msg=none"},
		"an OK status":     {materpc.NewBizError(7, "x").WithStatus(status.New(codes.OK, "fine")), "biz error: code=7, msg=fine"},
	} {
		if got := test.err.Error(); got != test.want || status.Code(test.err) != codes.Internal && name != "wrapped and sent" {
			t.Errorf("%s: %q with code %v, want %q", name, got, status.Code(test.err), test.want)
		}
	}
	if message := materpc.NewBizError(7, "").BizMessage(); message != "business error 7" {
		t.Errorf("a peer that reads only the status is told %q", message)
	}
}
