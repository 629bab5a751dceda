package materpc_test

import (
	"errors"
	"testing"

	kerrors "github.com/go-kratos/kratos/v2/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
)

// TestErrorNeverStandsForOK: an error whose own status is OK (Kratos errors
// have HTTP codes, 200 among them) must not panic, nor read as a success.
func TestErrorNeverStandsForOK(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]*materpc.Error{
		"classified": materpc.Classified(materpc.RemoteOrNetwork, kerrors.New(200, "FINE", "all is well"), nil),
		"nil":        materpc.Classified(materpc.Local, nil, nil),
		"plain":      materpc.Classified(materpc.Local, errors.New("x"), nil),
		"made":       materpc.Errorf(materpc.NoError, "nothing"),
	} {
		if s, _ := status.FromError(err); s.Code() == codes.OK || err.Error() == "" {
			t.Errorf("%s: code %v, text %q", name, s.Code(), err.Error())
		}
	}
}
