package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	startBound = 15 * time.Second // from the start to "serving"
	stopBound  = 10 * time.Second // from SIGTERM to the end, beyond the window
)

// process is one server: this program again, under an id that no other process
// has. It is started once and ends once.
type process struct {
	id      string
	began   time.Time
	address string // once serving

	command *exec.Cmd
	stdin   io.Closer // the server leaves when it breaks
	output  *output
	leaving atomic.Bool   // its end is wanted
	ended   chan struct{} // closed once it is gone
	err     error         // of its end, then
}

// startProcess starts a server; awaitServing, which must follow, ends it when it
// does not get to serve.
func startProcess(ctx context.Context, id, registryName string, window time.Duration) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{id: id, began: time.Now(), output: newOutput(), ended: make(chan struct{})}
	// Not bound to ctx: a server outlives the wait for it.
	p.command = exec.CommandContext(context.WithoutCancel(ctx), program, serveCommand, "-id", id, "-registry", registryName, "-window", window.String())
	p.command.Stdout, p.command.Stderr = p.output, p.output
	if p.stdin, err = p.command.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process, which fleet.stop ends
		p.err = p.command.Wait()
		close(p.ended)
	}()
	return p, nil
}

// awaitServing waits until the server serves and is registered, or ctx ends. A
// process that does not get there is gone when it returns.
func (p *process) awaitServing(ctx context.Context) (err error) {
	timer := time.NewTimer(startBound)
	defer timer.Stop()
	select {
	case p.address = <-p.output.serving:
		return nil
	case <-p.ended:
		return p.failure("ended before it served")
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-timer.C:
		err = p.failure(fmt.Sprintf("did not serve within %v", startBound))
	}
	p.kill()
	return err
}

func (p *process) pid() int { return p.command.Process.Pid }

func (p *process) gone() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// terminate asks the server to leave, waits until it has, and returns how long
// that took. Whatever the error, it is gone.
func (p *process) terminate(window time.Duration) (time.Duration, error) {
	p.leaving.Store(true)
	asked := time.Now()
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil {
		_ = p.stdin.Close() // no such signal here (Windows): a broken pipe asks for the same
	}
	timer := time.NewTimer(window + stopBound)
	defer timer.Stop()
	select {
	case <-p.ended:
		if p.err != nil {
			return time.Since(asked), p.failure("ended badly after SIGTERM")
		}
		return time.Since(asked), nil
	case <-timer.C:
		p.kill()
		return time.Since(asked), p.failure(fmt.Sprintf("was still running %v after SIGTERM", window+stopBound))
	}
}

// kill ends the server without a goodbye.
func (p *process) kill() {
	p.leaving.Store(true)
	_ = p.command.Process.Kill() // an error means that it has ended
	<-p.ended
}

// failure tells what a server did, with the last it said.
func (p *process) failure(what string) error {
	faults := []error{fmt.Errorf("server %s (pid %d) %s", p.id, p.pid(), what)}
	if p.gone() {
		faults = append(faults, p.err)
	}
	if said := p.output.tail(); said != "" {
		faults = append(faults, errors.New(said))
	}
	return errors.Join(faults...)
}

// output finds the address in what a server prints and keeps the end of the rest.
type output struct {
	serving chan string // gets the address, once

	mu   sync.Mutex
	line []byte
	last []string
}

const keptLines = 10

func newOutput() *output { return &output{serving: make(chan string, 1)} }

// Write implements io.Writer.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.line = append(o.line, text...)
	for {
		line, rest, whole := bytes.Cut(o.line, []byte("\n"))
		if !whole {
			return len(text), nil
		}
		o.line = rest
		o.take(string(line))
	}
}

func (o *output) take(line string) {
	if address, ok := strings.CutPrefix(line, servingPrefix); ok {
		select {
		case o.serving <- address:
		default:
		}
		return
	}
	o.last = append(o.last, line)
	if len(o.last) > keptLines {
		o.last = o.last[1:]
	}
}

// tail returns the last lines.
func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.last, "\n")
}
