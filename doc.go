// Package materpc is the vocabulary of a governed call: what a call is
// ([RPCInfo]), how it went ([KindOf], [Error]), what happened on its way
// ([Event], [Tracer]), how a business failure travels ([BizError]) and what
// runs when its answer is out ([After]).
//
// A handler, a middleware or a client of package transport/grpc reads the call
// it runs in from its ctx:
//
//	info, ok := materpc.FromContext(ctx)
//	if ok {
//		fmt.Println(info.FullMethod(), info.From(), info.Elapsed())
//	}
//
// and asks an error what happened:
//
//	switch materpc.KindOf(err) {
//	case materpc.RPCTimeout: // our own timeout, not the caller's deadline
//	case materpc.ConnectionLost: // it may have run
//	}
//	errors.Is(err, materpc.ServerRefused) // the same question with the standard library
//
// The package holds no policy, opens no connection and starts no goroutine.
package materpc
