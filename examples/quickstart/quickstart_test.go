package main

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/materpc/materpc"
)

func TestConfigReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := parseConfig([]string{"-duration", "1s", "-rate", "0", "-window", "-1s", "-rtt", "2s", "-servers", "1"}, io.Discard)
	for _, flag := range []string{"-duration is 1s", "-rate is 0", "-window is -1s", "-rtt is 2s", "-servers is 1"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("error %v does not say %q", err, flag)
		}
	}
	for _, args := range [][]string{{"-nope"}, {"argument"}} {
		if _, err := parseConfig(args, io.Discard); err == nil || !strings.Contains(err.Error(), "-h lists the flags") {
			t.Errorf("%q: %v", args, err)
		}
	}
	c, err := parseConfig(nil, io.Discard)
	if err != nil || c.duration != 15*time.Second || c.rate != 500 || c.servers != 3 {
		t.Errorf("defaults %+v, %v", c, err)
	}
}

func TestTallyTellsLostFromFailed(t *testing.T) {
	t.Parallel()
	counts := newTally(func(id string) state {
		return map[string]state{"dead": killed, "alive": serving}[id]
	})
	cut := func(id string) error {
		return materpc.Classified(materpc.ConnectionLost, grpcstatus.Error(codes.Unavailable, "cut"), &materpc.Peer{ID: id})
	}
	moved := &record{shape: shape{name: "unary"}}
	moved.moved.Store(true)
	counts.ended(moved, "alive", 20*time.Millisecond, nil)
	counts.ended(&record{shape: streamShapes[0]}, "alive", time.Second, nil)
	counts.ended(&record{}, "", 0, cut("dead"))  // inside the killed process
	counts.ended(&record{}, "", 0, cut("alive")) // nobody killed that one
	counts.ended(&record{}, "", 0, errors.New("whatever"))
	s := summarize(config{}, counts, &script{}, time.Second, 0)
	if s.Calls != 5 || s.Streams != 1 || s.Failed != 2 || s.Lost != 1 || s.Repicked != 1 {
		t.Errorf("summary %+v", s)
	}
	if s.P50 < 19.8 || s.P50 > 20.4 {
		t.Errorf("p50 is %v ms of one call of 20 ms", s.P50)
	}
	if s.verdict() == nil {
		t.Error("failed calls are no error")
	}
}

// TestUnusableRegistry: what cannot be written is told in one line, and nothing
// is started.
func TestUnusableRegistry(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := demonstrate([]string{"-registry", file}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v does not name %s", err, file)
	}
}

// TestOutputFindsTheAddress: in pieces, among other lines, of which the last
// are kept.
func TestOutputFindsTheAddress(t *testing.T) {
	t.Parallel()
	o := newOutput()
	for _, piece := range []string{"warn", "ing\nserving on 127.0", ".0.1:5\nserving on again\n", strings.Repeat("x\n", keptLines)} {
		if n, err := o.Write([]byte(piece)); n != len(piece) || err != nil {
			t.Fatalf("Write: %d, %v", n, err)
		}
	}
	if address := <-o.serving; address != "127.0.0.1:5" {
		t.Errorf("address %q", address)
	}
	if said := o.tail(); strings.Contains(said, "warning") || strings.Count(said, "x") != keptLines {
		t.Errorf("kept %q", said)
	}
}

func TestHistogramQuantiles(t *testing.T) {
	t.Parallel()
	var h histogram
	if h.quantile(0.99) != 0 {
		t.Error("a quantile of nothing")
	}
	for ms := range 1000 {
		h.add(time.Duration(ms+1) * time.Millisecond)
	}
	for share, want := range map[float64]time.Duration{0.5: 500 * time.Millisecond, 0.99: 990 * time.Millisecond, 1: time.Second} {
		if got := h.quantile(share); got < want || got > want*102/100 {
			t.Errorf("quantile %v: %v, want %v and at most 2 %% more", share, got, want)
		}
	}
	h.add(time.Hour) // beyond the last bucket
	if got := h.quantile(1); got < time.Minute {
		t.Errorf("an hour counts as %v", got)
	}
}

// TestStatusLine: answers a second over the last second, on a line that fits.
func TestStatusLine(t *testing.T) {
	t.Parallel()
	at := func(elapsed time.Duration, answers int) status {
		return status{
			elapsed: elapsed, whole: 10 * time.Second, counts: counts{calls: 4200, repicked: 3},
			servers: []life{{id: "a", state: serving}, {id: "b", state: leaving}}, answers: map[string]int{"a": answers},
		}
	}
	var speed speedometer
	for i := range 40 {
		at(time.Duration(i)*100*time.Millisecond, i*5).line(&speed, true)
	}
	got := at(4*time.Second, 300).line(&speed, true) // 50 a second, then 105 at once
	if want := "  4.0s  ━━━━━━┄┄┄┄┄┄┄┄┄┄  ●150 ◐0   /s  4200 calls  0 failed  3 re-picked"; got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	if got := cut(got, 10); got != "  4.0s  ━━" {
		t.Errorf("cut to %q", got)
	}
}

// TestSummaryText: every count has a meaning, and the simulated way is told.
func TestSummaryText(t *testing.T) {
	t.Parallel()
	s := &summary{
		Calls: 1234, Failed: 1, Lost: 2, took: 16 * time.Second, config: config{rtt: 10 * time.Millisecond},
		lives: []life{{id: "hello-1.1", fate: "SIGKILL"}}, answers: map[string]int{"hello-1.1": 1200},
	}
	text := s.text(true)
	for _, want := range []string{
		"1,234 calls", "ended after 16.0 s", "10 the simulated way", "calls answered", "1,200   SIGKILL",
		red + "      1  failed", "\n      2  lost", "nobody can know whether they ran",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, servers := range []int{numbered, numbered + 1} {
		if got := legend(servers); strings.Contains(got, "answers") != (servers == numbered) || len([]rune(got)) > columns {
			t.Errorf("legend of %d servers: %q", servers, got)
		}
	}
}

// TestDistance: what is read arrives a round trip later, in order, and a close
// ends the wait.
func TestDistance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		const delay = 10 * time.Millisecond
		c := &distantConn{Conn: near, delay: delay, arrivals: make(chan arrival, 8), closed: make(chan struct{})}
		go c.receive()
		began := time.Now()
		go func() {
			_, _ = far.Write([]byte("ab"))
			_, _ = far.Write([]byte("c"))
		}()
		buffer := make([]byte, 1)
		var got []byte
		for range 3 {
			if _, err := c.Read(buffer); err != nil {
				t.Fatal(err)
			}
			got = append(got, buffer...)
		}
		if took := time.Since(began); string(got) != "abc" || took != delay {
			t.Errorf("read %q after %v, want abc after %v: messages overlap on their way", got, took, delay)
		}
		_ = far.Close()
		if _, err := c.Read(buffer); !errors.Is(err, io.EOF) || time.Since(began) != 2*delay {
			t.Errorf("after the end: %v after %v", err, time.Since(began))
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}
