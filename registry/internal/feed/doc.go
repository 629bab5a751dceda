// Package feed is the Watcher that our registries share: a backend pushes
// whole lists, a reader takes the newest.
//
//	f := feed.New(ctx)
//	f.Push(list)
//	list, err := f.Next()
//
// It keeps Kratos's contract: the first Next returns when the list is not
// empty, each further one when it has changed. Lists in between may be
// skipped. It does not read, poll or retry: that is the backend's part.
package feed
