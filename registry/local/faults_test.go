package local_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/local"
)

// faultyFiles counts what a registry does to its directory and lets a test
// decide what becomes of it.
type faultyFiles struct {
	mu     sync.Mutex
	calls  map[string]int
	before map[string]func() error
	after  map[string]func() error
}

func (f *faultyFiles) wrap(files local.Files) local.Files {
	return local.Hooked{
		Files:  files,
		Before: func(op, _ string) error { f.note(op); return f.run(f.hook(&f.before, op)) },
		After:  func(op, _ string) error { return f.run(f.hook(&f.after, op)) },
	}
}

func (f *faultyFiles) note(op string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[op]++
}

func (f *faultyFiles) hook(from *map[string]func() error, op string) func() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return (*from)[op]
}

func (*faultyFiles) run(hook func() error) error {
	if hook == nil {
		return nil
	}
	return hook()
}

func (f *faultyFiles) set(into *map[string]func() error, op string, hook func() error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if *into == nil {
		*into = map[string]func() error{}
	}
	(*into)[op] = hook
}

func (f *faultyFiles) count(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

func (f *faultyFiles) total() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.calls {
		n += c
	}
	return n
}

var errDisk = errors.New("disk full")

func failing() error { return errDisk }

func TestRegisterThatFailsLeavesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := &faultyFiles{}
		owner := local.OpenWith(dir, disk.wrap)
		disk.set(&disk.before, "replace", failing)
		if err := owner.Register(t.Context(), user("1")); !errors.Is(err, errDisk) {
			t.Errorf("Register: %v", err)
		}
		disk.set(&disk.before, "replace", nil)
		time.Sleep(10 * time.Second)
		if left := files(t, dir); len(left) != 0 || disk.count("patch") != 0 {
			t.Errorf("left: %v, calls %v", left, disk.calls)
		}
		must(t, owner.Register(t.Context(), user("1"))) // the key can be used again
		time.Sleep(10 * time.Second)
		if disk.count("patch") < 9 {
			t.Errorf("no heartbeat: %v", disk.calls)
		}
		closeAll(t, owner)
	})
}

// TestRegistersThatFailAreForgotten wants nothing kept of first Registers that
// failed, except where a file may have stayed.
func TestRegistersThatFailAreForgotten(t *testing.T) {
	t.Parallel()
	slow := func() error { time.Sleep(time.Second); return nil }
	for name, test := range map[string]struct {
		fault func(*faultyFiles)
		keeps int
	}{
		"not written":  {fault: func(f *faultyFiles) { f.set(&f.before, "replace", failing) }},
		"written late": {fault: func(f *faultyFiles) { f.set(&f.before, "replace", slow) }},
		"perhaps written, not removable": {keeps: 20, fault: func(f *faultyFiles) {
			f.set(&f.after, "replace", failing)
			f.set(&f.before, "read", failing)
			f.set(&f.before, "remove", failing)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				disk := &faultyFiles{}
				owner := local.OpenWith(dir, disk.wrap)
				test.fault(disk)
				for i := range 20 {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					if err := owner.Register(ctx, user(strconv.Itoa(i))); err == nil {
						t.Error("Register succeeded")
					}
					cancel()
				}
				time.Sleep(10 * time.Second)
				if kept := local.Owners(owner); kept != test.keeps {
					t.Errorf("%d owners are kept, want %d", kept, test.keeps)
				}
				for _, hooks := range []*map[string]func() error{&disk.before, &disk.after} {
					for _, op := range []string{"replace", "read", "remove"} {
						disk.set(hooks, op, nil)
					}
				}
				for i := range 20 { // what may have stayed can still be taken away
					must(t, owner.Deregister(t.Context(), user(strconv.Itoa(i))))
				}
				if left, kept := files(t, dir), local.Owners(owner); len(left) != 0 || kept != 0 {
					t.Errorf("left: %v, %d owners", left, kept)
				}
				closeAll(t, owner)
			})
		})
	}
}

func TestInvariant02WriteThatFailedAfterItWasApplied(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := &faultyFiles{}
		owner, reader := local.OpenWith(dir, disk.wrap), open(t, dir)
		disk.set(&disk.after, "replace", failing)
		disk.set(&disk.after, "remove", failing)
		must(t, owner.Register(t.Context(), user("1")))
		time.Sleep(10 * time.Second)
		if got := list(t, reader, "user"); got != "1" || disk.count("patch") < 9 {
			t.Errorf("list is %q, calls %v", got, disk.calls)
		}
		must(t, owner.Deregister(t.Context(), user("1")))
		if got := list(t, reader, "user"); got != "" {
			t.Errorf("list is %q", got)
		}
		closeAll(t, owner, reader)
	})
}

func TestSecondGenerationThatFailsLeavesTheFirstAndItsHeartbeat(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(*faultyFiles){
		"before the write": func(f *faultyFiles) { f.set(&f.before, "replace", failing) },
		"late": func(f *faultyFiles) {
			f.set(&f.before, "replace", func() error { time.Sleep(700 * time.Millisecond); return nil })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				disk := &faultyFiles{}
				owner, reader := local.OpenWith(dir, disk.wrap), open(t, dir)
				must(t, owner.Register(t.Context(), user("1")))
				fault(disk)
				second := user("1")
				second.Version = "v2"
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				if err := owner.Register(ctx, second); err == nil {
					t.Error("the second generation was accepted")
				}
				time.Sleep(2 * time.Second) // one heartbeat restores what a late write changed
				disk.set(&disk.before, "replace", nil)
				time.Sleep(time.Second)
				for range 90 { // three expiries
					found, err := reader.GetService(t.Context(), "user")
					must(t, err)
					if len(found) != 1 || !registry.Equal(found[0], user("1")) {
						t.Fatalf("the first generation's record is %v", found)
					}
					time.Sleep(100 * time.Millisecond)
				}
				closeAll(t, owner, reader)
			})
		})
	}
}

func TestInvariant01RegisterThatLandsAfterItsCtxIsUndone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := &faultyFiles{}
		owner := local.OpenWith(dir, disk.wrap)
		disk.set(&disk.before, "replace", func() error { time.Sleep(time.Second); return nil })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := owner.Register(ctx, user("1")); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 200*time.Millisecond {
			t.Errorf("Register: %v after %s", err, time.Since(began))
		}
		time.Sleep(10 * time.Second)
		if left := files(t, dir); len(left) != 0 || disk.count("patch") != 0 {
			t.Errorf("left: %v, calls %v", left, disk.calls)
		}
		closeAll(t, owner)
	})
}

func TestCaseB46NothingRegistersAfterDeregister(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := &faultyFiles{}
		owner := local.OpenWith(dir, disk.wrap)
		for run := range 100 {
			must(t, owner.Register(t.Context(), user("1")))
			held, release := make(chan struct{}), make(chan struct{})
			var once sync.Once
			op := []string{"read", "patch", "replace"}[run%3]
			if op == "replace" {
				must(t, os.Remove(dir+"/"+local.FileName("user", "1"))) // the heartbeat has to restore it
			}
			disk.set(&disk.before, op, func() error {
				once.Do(func() { close(held); <-release })
				return nil
			})
			<-held // the heartbeat is in flight
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			began := time.Now()
			err := owner.Deregister(ctx, user("1"))
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 60*time.Millisecond {
				t.Fatalf("run %d: Deregister: %v after %s", run, err, time.Since(began))
			}
			close(release)
			disk.set(&disk.before, op, nil)
			time.Sleep(300 * time.Millisecond)
			if left := files(t, dir); len(left) != 0 {
				t.Fatalf("run %d, %s held: the record came back: %v", run, op, left)
			}
			before := disk.total()
			time.Sleep(5 * time.Second)
			if n := disk.total() - before; n != 0 {
				t.Fatalf("run %d: %d file operations after Deregister", run, n)
			}
			must(t, owner.Deregister(t.Context(), user("1")))
		}
		closeAll(t, owner)
	})
}

func TestCaseB46RegisterInFlightDuringDeregister(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := &faultyFiles{}
		owner := local.OpenWith(dir, disk.wrap)
		release := make(chan struct{})
		disk.set(&disk.before, "replace", func() error { <-release; return nil })
		registered := make(chan error)
		go func() { registered <- owner.Register(t.Context(), user("1")) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := owner.Deregister(ctx, user("1")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Deregister: %v", err)
		}
		close(release)
		t.Log("ended:", <-registered)
		synctest.Wait()
		before := disk.total()
		time.Sleep(10 * time.Second)
		if left := files(t, dir); len(left) != 0 || disk.total() != before {
			t.Errorf("left: %v; %d file operations after Deregister", left, disk.total()-before)
		}
		closeAll(t, owner)
	})
}

// TestRegistersThatWaitForADeregisterKeepTheirRecord has two of them: what the
// first has written is not the withdrawn one's to remove.
func TestRegistersThatWaitForADeregisterKeepTheirRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := &faultyFiles{}
		owner := local.OpenWith(dir, disk.wrap)
		must(t, owner.Register(t.Context(), user("1")))
		for _, op := range []string{"read", "remove"} {
			disk.set(&disk.before, op, func() error { time.Sleep(100 * time.Millisecond); return nil })
		}
		var group sync.WaitGroup
		group.Go(func() { must(t, owner.Deregister(t.Context(), user("1"))) })
		synctest.Wait()
		for range 2 {
			group.Go(func() { must(t, owner.Register(t.Context(), user("1"))) })
		}
		group.Wait()
		if left := files(t, dir); len(left) != 1 || disk.count("remove") != 1 {
			t.Errorf("left: %v, calls %v", left, disk.calls)
		}
		closeAll(t, owner)
	})
}

func TestHeartbeatNeverGivesUp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk, events := &faultyFiles{}, &eventLog{}
		owner, reader := local.OpenWith(dir, disk.wrap, local.OnEvent(events.add)), open(t, dir)
		must(t, owner.Register(t.Context(), user("1")))
		for _, op := range []string{"patch", "replace"} {
			disk.set(&disk.before, op, failing)
		}
		must(t, os.RemoveAll(dir))
		time.Sleep(time.Minute)
		if n := len(events.of(registry.HeartbeatFailed)); n != 1 {
			t.Errorf("%d events for one outage", n)
		}
		for _, op := range []string{"patch", "replace"} {
			disk.set(&disk.before, op, nil)
		}
		time.Sleep(2 * time.Second)
		if got := list(t, reader, "user"); got != "1" {
			t.Errorf("two heartbeats after the outage the list is %q", got)
		}
		closeAll(t, owner, reader)
	})
}

func TestInvariant11UnreadableDirectoryWithdrawsNobody(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"list", "read"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				disk, events := &faultyFiles{}, &eventLog{}
				owner, reader := open(t, dir), local.OpenWith(dir, disk.wrap, local.OnEvent(events.add))
				must(t, owner.Register(t.Context(), user("1")))
				watcher, err := reader.Watch(t.Context(), "user")
				must(t, err)
				defer func() { _ = watcher.Stop() }()
				if _, err := watcher.Next(); err != nil {
					t.Fatal(err)
				}
				disk.set(&disk.before, op, failing)
				time.Sleep(2 * time.Second)
				found, err := reader.GetService(t.Context(), "user")
				if (err == nil) == (op == "list") || err == nil && len(found) != 1 {
					t.Errorf("GetService of an unreadable directory: %v, %v", found, err)
				}
				disk.set(&disk.before, op, nil)
				time.Sleep(time.Second)
				if got := list(t, reader, "user"); got != "1" {
					t.Errorf("list is %q", got)
				}
				if op == "list" && (len(events.of(registry.ReadFailed)) != 1 || len(events.of(registry.ReadRecovered)) != 1) {
					t.Errorf("events are %v", events.all)
				}
				closeAll(t, owner, reader)
			})
		})
	}
}

// TestShortListWithdrawsNobody has one list that misses files, as os.ReadDir
// returns it when the directory goes away while it looks at each entry.
func TestShortListWithdrawsNobody(t *testing.T) {
	t.Parallel()
	for name, wiped := range map[string]bool{"wiped meanwhile": true, "still there": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				var shorten atomic.Bool
				disk := &faultyFiles{}
				owner, reader := open(t, dir), local.OpenWith(dir, func(f local.Files) local.Files {
					hooked, ok := disk.wrap(f).(local.Hooked)
					if !ok {
						t.Error("the disk is not the hooked one")
						return f
					}
					hooked.Listed = func(names []string) []string {
						if !shorten.CompareAndSwap(true, false) {
							return names
						}
						if wiped {
							must(t, os.Rename(dir, dir+".wiped"))
						}
						return nil
					}
					return hooked
				})
				must(t, owner.Register(t.Context(), user("1")))
				must(t, owner.Register(t.Context(), user("2")))
				watcher, err := reader.Watch(t.Context(), "user")
				must(t, err)
				defer func() { _ = watcher.Stop() }()
				if first, err := watcher.Next(); err != nil || len(first) != 2 {
					t.Fatalf("Next = %v, %v", first, err)
				}
				shorten.Store(true)
				for range 30 {
					time.Sleep(100 * time.Millisecond)
					if got := list(t, reader, "user"); got != "1 2" {
						t.Errorf("list is %q", got)
						break
					}
				}
				closeAll(t, owner, reader)
			})
		})
	}
}

func TestInvariant12HangingFileSystemHoldsUpNobody(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := &faultyFiles{}
		release := make(chan struct{})
		r := local.OpenWith(dir, disk.wrap, local.OnEvent(func(registry.Event) { panic("injected panic") }))
		must(t, r.Register(t.Context(), user("1")))
		hang := func() error { <-release; return nil }
		for _, op := range []string{"list", "read", "patch", "replace", "remove"} {
			disk.set(&disk.before, op, hang)
		}
		time.Sleep(2 * time.Second) // the heartbeat hangs now
		for what, call := range map[string]func(context.Context) error{
			"register":   func(ctx context.Context) error { return r.Register(ctx, user("2")) },
			"again":      func(ctx context.Context) error { return r.Register(ctx, user("1")) },
			"deregister": func(ctx context.Context) error { return r.Deregister(ctx, user("1")) },
			"list":       func(ctx context.Context) error { _, err := r.GetService(ctx, "user"); return err },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			began := time.Now()
			err := call(ctx)
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > 110*time.Millisecond {
				t.Errorf("%s: %v after %s", what, err, time.Since(began))
			}
		}
		began := time.Now()
		if err := r.Close(); err == nil || time.Since(began) > 4*time.Second {
			t.Errorf("Close: %v after %s", err, time.Since(began))
		}
		close(release)
		time.Sleep(time.Second)
		if left := files(t, dir); len(left) != 0 {
			t.Errorf("when the file system came back it kept %v", left)
		}
		closeAll(t, r)
	})
}
