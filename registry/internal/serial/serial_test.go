package serial_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/registry/internal/serial"
)

func TestQueueKeepsOrderAndSurvivesItsJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var (
			queue serial.Queue
			got   []int
		)
		for i := range 10 {
			queue.Do(func() {
				got = append(got, i)
				switch i {
				case 3:
					panic("injected panic")
				case 5:
					runtime.Goexit()
				}
			})
		}
		if err := queue.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			if got[i] != i {
				t.Fatalf("order is %v", got)
			}
		}
	})
}

func TestQueueIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var queue serial.Queue
		release := make(chan struct{})
		queue.Do(func() { <-release })
		synctest.Wait()
		taken := 0
		for range 2 * serial.Limit {
			if queue.Do(func() {}) {
				taken++
			}
		}
		if taken != serial.Limit {
			t.Errorf("%d jobs taken, want %d", taken, serial.Limit)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := queue.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait: %v", err)
		}
		close(release)
		if err := queue.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestBoundedAnswersExactlyOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		late := 0
		note := func(int, error) { late++ }
		if v, answered, err := serial.Bounded(ctx, func() (int, error) { return 7, nil }, note); v != 7 || !answered || err != nil {
			t.Errorf("in time: %d, %v, %v", v, answered, err)
		}
		if _, answered, err := serial.Bounded(ctx, func() (int, error) { panic(errors.ErrUnsupported) }, note); !answered || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("panic: %v, %v", answered, err)
		}
		if _, answered, err := serial.Bounded(ctx, func() (int, error) { runtime.Goexit(); return 0, nil }, note); !answered || !errors.Is(err, serial.ErrGoexit) {
			t.Errorf("goexit: %v, %v", answered, err)
		}
		if late != 0 {
			t.Errorf("late was called %d times for answers in time", late)
		}
		if _, answered, err := serial.Bounded(ctx, func() (int, error) { time.Sleep(time.Minute); return 1, nil }, note); answered || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("late: %v, %v", answered, err)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if late != 1 {
			t.Errorf("late was called %d times", late)
		}
	})
}
