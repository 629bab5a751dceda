package shield_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

// act is what one attempt does.
type act struct {
	takes   time.Duration
	reply   int
	err     error
	ignores bool // its ctx
}

// play is concurrent work that does what its acts say, attempt by attempt.
type play struct {
	acts      []act
	runs      atomic.Int32
	cancelled atomic.Int32
}

func (p *play) run(ctx context.Context) (int, error) {
	n := int(p.runs.Add(1))
	a := p.acts[min(n, len(p.acts))-1]
	if a.ignores {
		time.Sleep(a.takes)
		return a.reply, a.err
	}
	timer := time.NewTimer(a.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return a.reply, a.err
	case <-ctx.Done():
		p.cancelled.Add(1)
		return -n, ctx.Err()
	}
}

func (p *play) call(ctx context.Context, s *shield.Shield) (int, error) {
	return shield.Call(ctx, s, p, func(ctx context.Context, p *play) (int, error) { return p.run(ctx) })
}

var errFatal = errors.New("invalid argument")

// transient handles errDown and the end of an attempt's own time.
func transient() *shield.Clause {
	return shield.Errors("transient", errDown, context.DeadlineExceeded)
}

func empty(t *testing.T) *shield.Budget {
	t.Helper()
	return shield.NewAllowance(0, time.Second)
}

func TestHedge(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	wait, hour := shield.Hedge{Max: 3, Delay: 10 * ms}, time.Hour
	type want struct {
		reply     int
		err       error
		took      time.Duration
		runs      int32
		cancelled int32
	}
	for name, c := range map[string]struct {
		layers []shield.Layer
		acts   []act
		cancel time.Duration
		want   want
	}{
		"B13 empty budget, slow success": {
			[]shield.Layer{shield.Hedge{Max: 3, Delay: 10 * ms, Budget: empty(t)}},
			[]act{{takes: 50 * ms, reply: 7}},
			0,
			want{7, nil, 50 * ms, 1, 0},
		},
		"B13 empty budget, failure": {
			[]shield.Layer{shield.Hedge{Max: 3, Delay: 10 * ms, Budget: empty(t)}},
			[]act{{takes: ms, err: errDown}},
			0,
			want{0, errDown, ms, 1, 0},
		},
		"B14 failure starts the next": {
			[]shield.Layer{shield.On(transient()), shield.Hedge{Max: 1, Delay: 5 * time.Second}},
			[]act{{takes: ms, err: errDown}, {reply: 7}},
			0,
			want{7, nil, ms, 2, 0},
		},
		"B14 fatal failure ends": {
			[]shield.Layer{shield.On(transient()), shield.Hedge{Max: 1, Delay: 5 * time.Second}},
			[]act{{takes: ms, err: errFatal}},
			0,
			want{0, errFatal, ms, 1, 0},
		},
		"B14 later failure waits for the first": {
			[]shield.Layer{shield.Hedge{Max: 1, Delay: 10 * ms}},
			[]act{{takes: 90 * ms, reply: 7}, {takes: ms, err: errDown}},
			0,
			want{7, nil, 90 * ms, 2, 0},
		},
		"B15 caller cancels before the next": {
			[]shield.Layer{shield.Hedge{Max: 3, Delay: 20 * ms}},
			[]act{{takes: 200 * ms, ignores: true}},
			10 * ms,
			want{0, context.Canceled, 10 * ms, 1, 0},
		},
		"B15 an attempt's own timeout": {
			[]shield.Layer{shield.Hedge{Max: 3, Delay: 20 * ms}, shield.Timeout{After: 15 * ms}},
			[]act{{takes: hour}, {reply: 7}},
			0,
			want{7, nil, 15 * ms, 2, 1},
		},
		"a loser is cancelled": {
			[]shield.Layer{wait}, []act{{takes: hour, reply: 1}, {takes: 3 * ms, reply: 2}}, 0, want{2, nil, 13 * ms, 2, 1},
		},
		"at once": {
			[]shield.Layer{shield.Hedge{Max: 2, Delay: shield.AtOnce}},
			[]act{{takes: 5 * ms, reply: 1}, {takes: 5 * ms, reply: 1}, {takes: 5 * ms, reply: 1}},
			0,
			want{1, nil, 5 * ms, 3, 0},
		},
		"on failure only": {
			[]shield.Layer{shield.Hedge{Max: 2, Delay: shield.OnFailure}},
			[]act{{takes: hour, err: errDown}, {takes: hour, reply: 2}},
			0,
			want{2, nil, 2 * hour, 2, 0},
		},
		"all fail": {
			[]shield.Layer{wait}, []act{{err: errFatal}, {err: errFatal}, {err: errFatal}, {err: errDown}}, 0, want{0, errDown, 0, 4, 0},
		},
		"retry inside hedge multiplies": {
			[]shield.Layer{shield.Hedge{Max: 1, Delay: shield.OnFailure}, shield.Retry{Max: 2, Backoff: shield.Constant(ms)}},
			[]act{{err: errDown}},
			0,
			want{0, errDown, 4 * ms, 6, 0},
		},
		"hedge inside retry multiplies": {
			[]shield.Layer{shield.Retry{Max: 2, Backoff: shield.Constant(ms)}, shield.Hedge{Max: 1, Delay: shield.OnFailure}},
			[]act{{err: errDown}},
			0,
			want{0, errDown, 2 * ms, 6, 0},
		},
		"stop reaches an outer hedge and retry": {
			[]shield.Layer{shield.Retry{Backoff: shield.Constant(ms)}, shield.Hedge{Delay: shield.OnFailure}, shield.Retry{Backoff: shield.Constant(ms)}},
			[]act{{err: errDown}, {err: pushed{stop: true}}},
			0,
			want{0, pushed{stop: true}, ms, 2, 0},
		},
		"stop ignored": {
			[]shield.Layer{shield.Hedge{Delay: shield.OnFailure, IgnorePushback: true}},
			[]act{{err: pushed{stop: true}}, {reply: 2}},
			0,
			want{2, nil, 0, 2, 0},
		},
		"a wish delays the next": {
			[]shield.Layer{shield.Hedge{Delay: shield.OnFailure}},
			[]act{{err: pushed{delay: 30 * ms}}, {reply: 2}},
			0,
			want{2, nil, 30 * ms, 2, 0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				p, began := &play{acts: c.acts}, time.Now()
				var got want
				got.reply, got.err = p.call(ctx, build(t, c.layers...))
				got.took = time.Since(began)
				synctest.Wait()
				got.runs, got.cancelled = p.runs.Load(), p.cancelled.Load()
				if got != c.want {
					t.Errorf("got %+v\nwant %+v", got, c.want)
				}
				time.Sleep(3 * time.Hour) // for work that ignores its ctx
				if p.runs.Load() != c.want.runs {
					t.Errorf("%d runs later", p.runs.Load())
				}
			})
		})
	}
}

// pushed carries a server's wish.
type pushed struct {
	delay time.Duration
	stop  bool
}

func (p pushed) Error() string                   { return "pushed back" }
func (p pushed) Pushback() (time.Duration, bool) { return p.delay, p.stop }

func TestHedgePanicReachesTheCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		share := shield.NewShare(1, 1)
		s := build(t, shield.Hedge{Delay: time.Second, Budget: share})
		var runs atomic.Int32
		func() {
			defer func() {
				if got := recover(); got != "broken" {
					t.Errorf("recovered %v", got)
				}
			}()
			_ = s.Do(t.Context(), func(ctx context.Context) error {
				if runs.Add(1) == 1 {
					<-ctx.Done()
					return nil
				}
				panic("broken")
			})
		}()
		synctest.Wait()
		if left := s.Snapshot().Layers[0].Tokens; left != 1 {
			t.Errorf("the budget has %v left, want 1: something is still in flight", left)
		}
	})
}

func TestHedgeAttemptThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		err := build(t, shield.Hedge{Delay: time.Second}).Do(t.Context(), func(context.Context) error {
			runs.Add(1)
			runtime.Goexit()
			return nil
		})
		if err == nil || runs.Load() != 2 {
			t.Errorf("%v after %d runs", err, runs.Load())
		}
	})
}

func TestHedgeStopReachesARetryThroughWrapping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &play{acts: []act{{err: errors.Join(errFatal, pushed{stop: true})}}}
		s := build(t, shield.Hedge{Max: 5, Delay: time.Millisecond}, shield.Timeout{After: time.Second}, shield.Retry{})
		if _, err := p.call(t.Context(), s); err == nil || p.runs.Load() != 1 {
			t.Errorf("%v after %d runs", err, p.runs.Load())
		}
	})
}

// A loser that ends after the call writes to nothing of the caller's.
func TestHedgeLosersStayOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &play{acts: []act{{takes: time.Second, reply: 1, ignores: true}, {reply: 2}}}
		got, err := p.call(t.Context(), build(t, shield.Fallback(3), shield.Hedge{Delay: time.Millisecond}))
		time.Sleep(2 * time.Second)
		if got != 2 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
	})
}

// More attempts than the channel has room for all end, although nobody listens.
func TestHedgeManyAttemptsLeaveNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		p := &play{acts: []act{{takes: time.Hour, ignores: true}}}
		if _, err := p.call(ctx, build(t, shield.Hedge{Max: 5000, Delay: time.Millisecond})); !errors.Is(err, context.DeadlineExceeded) || p.runs.Load() < 1500 {
			t.Error(err, p.runs.Load())
		}
		time.Sleep(2 * time.Hour)
	})
}
