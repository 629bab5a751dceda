package grpc

import (
	"encoding/json"
	"strconv"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
)

// Kitex's trailers of a business error (pkg/remote/trans/nphttp2/metadata and kerrors in
// github.com/cloudwego/kitex).
const (
	bizStatusKey = "biz-status"
	bizExtraKey  = "biz-extra"
)

// bizError reads a business error. What Kitex would refuse as malformed is
// left out here: the status is what the caller needs.
func bizError(s *status.Status, trailer metadata.MD) error {
	code, err := strconv.ParseInt(trailer[bizStatusKey][0], 10, 32)
	if err != nil {
		return materpc.Classified(materpc.RemoteOrNetwork, s.Err(), nil)
	}
	if len(s.Proto().GetDetails()) == 0 { // as with all errors whose kind is known here
		if detailed, err := s.WithDetails(&errdetails.ErrorInfo{Reason: materpc.Biz.Reason()}); err == nil {
			s = detailed
		}
	}
	biz := materpc.NewBizError(int32(code), s.Message()).WithStatus(s)
	if values := trailer[bizExtraKey]; len(values) > 0 {
		var extra map[string]string
		if json.Unmarshal([]byte(values[0]), &extra) == nil {
			biz = biz.WithExtra(extra)
		}
	}
	return biz
}
