package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// screen shows what happens: events as lines that stay, the state of the load
// as one line that is redrawn on a terminal and repeated elsewhere. Safe for
// concurrent use.
type screen struct {
	out   io.Writer
	fancy bool // a terminal: redraw, colours

	mu    sync.Mutex
	began time.Time // of the load; zero before
	line  string    // the status line that stands on the terminal
}

const (
	redrawn  = 100 * time.Millisecond // on a terminal
	repeated = 1500 * time.Millisecond
	columns  = 79
	numbered = 4 // servers beyond this many are shown without numbers
)

func newScreen(out io.Writer) *screen {
	return &screen{out: out, fancy: isTerminal(out)}
}

// isTerminal tells terminals from files and pipes, as far as the standard
// library can.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("TERM") == "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func (s *screen) introduce(c config) {
	distance := fmt.Sprintf("What servers send arrives %v late, as over a network (-rtt).", c.rtt)
	if c.rtt == 0 {
		distance = "Caller and servers talk over plain loopback."
	}
	s.print(fmt.Sprintf("materpc quickstart: %d servers, each a process of its own; calls begin for %v,\n"+
		"%d a second, one in ten a stream of about a second. Every server is restarted with\n"+
		"SIGTERM: watch the failures stay at 0, without a retry policy. At the end one is\n"+
		"killed with SIGKILL: calls inside it are lost, and counted apart.\n"+
		"%s\n\n%s\n", c.servers, c.duration, c.rate, distance, legend(c.servers)))
}

// legend tells what the status line shows.
func legend(servers int) string {
	text := "  ● serves  ◐ leaves  ◌ starts  ○ gone  ✗ killed"
	if servers <= numbered {
		text += "; the number: answers a second"
	}
	return text
}

// event prints a line that stays.
func (s *screen) event(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := clock(0)
	if !s.began.IsZero() {
		at = clock(time.Since(s.began))
	}
	s.erase()
	fmt.Fprintf(s.out, "%s  %s\n", at, fmt.Sprintf(format, args...))
	s.draw(s.line)
}

// print prints lines that stay.
func (s *screen) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.erase()
	fmt.Fprintln(s.out, text)
	s.draw(s.line)
}

// follow shows the state of the load until the returned function is called,
// which takes the line away and waits.
func (s *screen) follow(read func() status) (unfollow func()) {
	s.mu.Lock()
	s.began = time.Now()
	s.mu.Unlock()
	every := repeated
	if s.fancy {
		every = redrawn
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		var speed speedometer
		speed.read(read())
		for {
			select {
			case <-stop:
				return
			case <-ticker.C:
				s.show(read(), &speed)
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		s.mu.Lock()
		defer s.mu.Unlock()
		s.erase()
		s.line = ""
	}
}

func (s *screen) show(now status, speed *speedometer) {
	text := now.line(speed, s.fancy)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fancy {
		fmt.Fprintln(s.out, text)
		return
	}
	s.erase()
	s.draw(text)
}

// erase and draw handle the status line of a terminal. s.mu is held.
func (s *screen) erase() {
	if s.line != "" {
		fmt.Fprint(s.out, "\r\x1b[K")
	}
}

func (s *screen) draw(text string) {
	s.line = text
	fmt.Fprint(s.out, text)
}

// conclude prints the summary.
func (s *screen) conclude(result *summary) {
	s.print("\n" + result.text(s.fancy && os.Getenv("NO_COLOR") == ""))
}

// status is the state of the load.
type status struct {
	elapsed, whole time.Duration
	servers        []life
	counts         counts
	answers        map[string]int // by server id
}

// line is the status on one line: time, a bar, each server with its answers a
// second, and the counts.
func (s status) line(speed *speedometer, bar bool) string {
	var text strings.Builder
	text.WriteString(clock(s.elapsed))
	if bar {
		const width = 16
		done := min(width, int(width*s.elapsed/s.whole))
		text.WriteString("  " + strings.Repeat("━", done) + strings.Repeat("┄", width-done))
	}
	text.WriteString("  ")
	rates := speed.read(s)
	for i, l := range s.servers {
		text.WriteString(glyph(l.state))
		if len(s.servers) <= numbered {
			fmt.Fprintf(&text, "%-4d", rates[i])
		}
	}
	if len(s.servers) <= numbered {
		text.WriteString("/s")
	}
	fmt.Fprintf(&text, "  %d calls  %d failed", s.counts.calls, s.counts.failed)
	if s.counts.repicked > 0 {
		fmt.Fprintf(&text, "  %d re-picked", s.counts.repicked)
	}
	if s.counts.lost > 0 {
		fmt.Fprintf(&text, "  %d lost", s.counts.lost)
	}
	return cut(text.String(), columns)
}

// glyph shows where a server stands.
func glyph(s state) string {
	return [...]string{starting: "◌", serving: "●", leaving: "◐", ended: "○", killed: "✗"}[s]
}

// speedometer turns counts into answers a second over the last second.
type speedometer struct{ past []status }

func (m *speedometer) read(now status) []int {
	m.past = append(m.past, now)
	for len(m.past) > 2 && now.elapsed-m.past[1].elapsed >= time.Second {
		m.past = m.past[1:]
	}
	then := m.past[0]
	rates := make([]int, len(now.servers))
	for i, l := range now.servers {
		if span := now.elapsed - then.elapsed; span > 0 {
			rates[i] = int(float64(now.answers[l.id]-then.answers[l.id])/span.Seconds() + 0.5)
		}
	}
	return rates
}

// cut shortens text to a number of columns, for one line that must stay one.
func cut(text string, columns int) string {
	if runes := []rune(text); len(runes) > columns {
		return string(runes[:columns])
	}
	return text
}

// clock is a moment of the run.
func clock(d time.Duration) string { return fmt.Sprintf("%5.1fs", d.Seconds()) }

// seconds is a span.
func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
