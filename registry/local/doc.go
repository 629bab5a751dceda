// Package local is a registry in a directory that the processes of one
// machine share: no server, nothing to install.
//
//	reg, err := local.New("")  // os.UserCacheDir()/materpc/registry, mode 0700
//	...
//	defer reg.Close()
//	err = reg.Register(ctx, instance)
//
// A record is one JSON file, written to a temporary file and renamed. Its
// owner renews a beat counter in it every second (20 bytes, in place). A
// reader looks every 100 ms while somebody watches, so a change is seen within
// 200 ms, and drops a record whose counter has not changed for 3 s of the
// reader's own monotonic clock: wall clocks, file times and the clocks of
// other processes play no part. Time in which the reader itself did not run
// does not count.
//
// An owner that finds its file missing or changed, also after the whole
// directory was wiped, writes its newest data again at the next heartbeat. To
// a reader a missing directory says nothing: records stay until they expire. A
// missing file says withdrawn, so when files are deleted one by one their
// instances are gone until that heartbeat. Deregister fences its heartbeat:
// nothing is written after it.
//
// Register takes a name and id over from whoever has them: whether that owner
// still lives cannot be known at first sight. One that does sees it at its next
// heartbeat, leaves the record alone, tells RecordContested (package app logs it
// as a warning), and takes it back when the newer one withdraws or stops beating.
// Until then it gets no calls: two live processes need two ids.
//
// What a reader cannot know at first sight is whether the owner of a file that
// is already there still lives: the file of a process that was killed looks
// like any other until its next heartbeat is due. Such a record is handed out
// at once and gets one expiry, 3 s, to show a beat: a client that withheld it
// would find nobody in the first second of its life, while a dead address in
// the list costs a refused connection, which is never sent and moves on. A
// reader that is already watching drops the same record 3 s after the kill.
//
// Files that are not records, copies, and records of a newer format are
// skipped, with one event per change. A file of a dead owner is removed by a
// reader that has looked at it for a minute without seeing a beat, moved aside
// and compared first, so that an owner that wakes up in between loses nothing.
// Where no reader lives that long it stays, and is skipped once its expiry is
// over. Other files are left alone.
//
// Defaults: heartbeat 1 s, expiry 3 s, look every 100 ms with a watcher and
// every second for 10 s after a GetService, files 0600.
//
// It is not for several machines: a network file system has neither the
// atomic rename nor the fresh reads that this needs.
package local
