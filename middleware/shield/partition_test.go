package shield_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

func partitions[K comparable](t testing.TB, config shield.PartitionConfig[K]) *shield.Partitions[K] {
	t.Helper()
	if config.Build == nil {
		config.Build = func(_ context.Context, key K) (*shield.Shield, error) { return shield.New(fmt.Sprint(key)) }
	}
	p, err := shield.NewPartitions(config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func get[K comparable](t testing.TB, p *shield.Partitions[K], key K) *shield.Shield {
	t.Helper()
	s, err := p.Get(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// B65: keys that come once do not stay, one that is in use keeps its state.
func TestCaseB65IdleKeysAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Minute
		p := partitions(t, shield.PartitionConfig[int]{Idle: idle, Max: 200_000})
		active := get(t, p, -1)
		for key := range 100_000 {
			get(t, p, key)
		}
		for range 4 {
			time.Sleep(idle / 2)
			if get(t, p, -1) != active {
				t.Fatal("the active key was built anew")
			}
		}
		if p.Len() != 1 || p.Evictions(shield.EvictedIdle) != 100_000 || p.Created() != 100_001 {
			t.Errorf("%d keys, %d evicted, %d created", p.Len(), p.Evictions(shield.EvictedIdle), p.Created())
		}
		time.Sleep(idle)
		if get(t, p, -1) == active {
			t.Error("an idle shield came back")
		}
		time.Sleep(idle)
		if n := p.Prune(); n != 1 || p.Len() != 0 {
			t.Errorf("pruned %d, %d left", n, p.Len())
		}
	})
	t.Run("churn of nodes", func(t *testing.T) {
		p := partitions(t, shield.PartitionConfig[int]{Max: 5})
		for key := range 10_000 {
			get(t, p, key)
			if p.Len() > 5 {
				t.Fatalf("%d kept", p.Len())
			}
		}
	})
}

func TestPartitionsDropTheLeastRecent(t *testing.T) {
	t.Parallel()
	var dropped []string
	p := partitions(t, shield.PartitionConfig[string]{Max: 3, OnEvict: func(key string, s *shield.Shield, why shield.Eviction) {
		dropped = append(dropped, key+" "+s.Name()+" "+why.String())
		panic("broken hook")
	}})
	for _, key := range strings.Fields("a b c a b d a e f") {
		get(t, p, key)
	}
	p.Close()
	p.Close()
	want := "c c full, b b full, d d full, a a closed, e e closed, f f closed"
	if got := strings.Join(dropped, ", "); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if _, err := p.Get(t.Context(), "a"); !errors.Is(err, shield.ErrPartitionsClosed) {
		t.Error(err)
	}
	if p.Evictions(shield.EvictedFull) != 3 || p.Evictions(shield.EvictedClosed) != 3 || p.Evictions(99) != 0 {
		t.Error("wrong counts")
	}
}

func TestPartitionsBuildOnceForAllWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		built := 0
		p := partitions(t, shield.PartitionConfig[string]{Build: func(context.Context, string) (*shield.Shield, error) {
			built++
			time.Sleep(time.Second)
			return shield.New("slow")
		}})
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() { get(t, p, "k") })
		}
		impatient, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		synctest.Wait()
		began := time.Now()
		if _, err := p.Get(impatient, "k"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 100*time.Millisecond {
			t.Error(err, time.Since(began))
		}
		group.Wait()
		if built != 1 {
			t.Errorf("built %d times", built)
		}
	})
}

func TestPartitionsBuilderThatLeavesHandsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := partitions(t, shield.PartitionConfig[string]{Build: func(ctx context.Context, _ string) (*shield.Shield, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(time.Second):
				return shield.New("k")
			}
		}})
		first, cancel := context.WithCancel(t.Context())
		var failed error
		go func() { _, failed = p.Get(first, "k") }()
		synctest.Wait()
		time.AfterFunc(time.Millisecond, cancel)
		get(t, p, "k")
		synctest.Wait()
		if !errors.Is(failed, context.Canceled) {
			t.Error(failed)
		}
	})
}

func TestPartitionsFailedBuildLeavesNothing(t *testing.T) {
	down := errors.New("no policy")
	for name, build := range map[string]func(context.Context, int) (*shield.Shield, error){
		"error": func(context.Context, int) (*shield.Shield, error) { return nil, down },
		"panic": func(context.Context, int) (*shield.Shield, error) { panic(down) },
		"nil":   func(context.Context, int) (*shield.Shield, error) { return nil, nil }, //nolint:nilnil // the case
	} {
		t.Run(name, func(t *testing.T) {
			p := partitions(t, shield.PartitionConfig[int]{Max: 1, Build: func(ctx context.Context, key int) (*shield.Shield, error) {
				if key == 1 {
					return build(ctx, key)
				}
				return shield.New("well")
			}})
			well := get(t, p, 0)
			for range 2 {
				if _, err := p.Get(t.Context(), 1); err == nil {
					t.Fatal("no error")
				}
			}
			if get(t, p, 0) != well || p.Len() != 1 || p.Created() != 1 {
				t.Error("the failed build moved something")
			}
		})
	}
}

func TestPartitionsBuildThatEndsItsGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := partitions(t, shield.PartitionConfig[int]{Build: func(context.Context, int) (*shield.Shield, error) {
			time.Sleep(time.Second)
			runtime.Goexit()
			return nil, nil //nolint:nilnil // not reached
		}})
		go func() { _, _ = p.Get(context.Background(), 1) }()
		synctest.Wait()
		if _, err := p.Get(t.Context(), 1); err == nil {
			t.Error("no error")
		}
	})
}

func TestPartitionsBuildsMayNest(t *testing.T) {
	t.Parallel()
	var p *shield.Partitions[int]
	p = partitions(t, shield.PartitionConfig[int]{Build: func(ctx context.Context, key int) (*shield.Shield, error) {
		if key == 0 {
			return shield.New("root")
		}
		inner, err := p.Get(ctx, key/2)
		if err != nil {
			return nil, err
		}
		return shield.New(fmt.Sprint(key), inner)
	}})
	get(t, p, 100)
	if p.Len() != 8 {
		t.Errorf("%d keys", p.Len())
	}
}

func TestPartitionsRefuseRings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p *shield.Partitions[int]
		p = partitions(t, shield.PartitionConfig[int]{Build: func(ctx context.Context, key int) (*shield.Shield, error) {
			time.Sleep(time.Second)
			return p.Get(ctx, (key+1)%3)
		}})
		var failed atomic.Int32
		var group sync.WaitGroup
		for key := range 3 {
			group.Go(func() {
				if _, err := p.Get(t.Context(), key); err != nil && strings.Contains(err.Error(), "waits for itself") {
					failed.Add(1)
				}
			})
		}
		group.Wait()
		if failed.Load() != 3 || p.Len() != 0 {
			t.Errorf("%d failed, %d kept", failed.Load(), p.Len())
		}
	})
}

func TestPartitionsCloseDuringABuild(t *testing.T) {
	t.Parallel()
	evicted := 0
	var p *shield.Partitions[int]
	p = partitions(t, shield.PartitionConfig[int]{
		Build:   func(context.Context, int) (*shield.Shield, error) { p.Close(); return shield.New("late") },
		OnEvict: func(int, *shield.Shield, shield.Eviction) { evicted++ },
	})
	if _, err := p.Get(t.Context(), 1); !errors.Is(err, shield.ErrPartitionsClosed) || evicted != 1 || p.Len() != 0 {
		t.Error(err, evicted, p.Len())
	}
}

func TestPartitionsFaults(t *testing.T) {
	t.Parallel()
	_, err := shield.NewPartitions(shield.PartitionConfig[int]{Max: -1, Idle: -2})
	for _, want := range []string{"Build is nil", "Max is -1", "Idle is -2ns"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	p := partitions(t, shield.PartitionConfig[float64]{})
	if _, err := p.Get(t.Context(), math.NaN()); err == nil || p.Len() != 0 {
		t.Error("a key that cannot be found again was kept")
	}
}

func TestPartitionsWarmGetAllocatesNothing(t *testing.T) {
	p := partitions(t, shield.PartitionConfig[string]{Idle: time.Hour})
	get(t, p, "a")
	get(t, p, "b")
	if n := testing.AllocsPerRun(1000, func() { get(t, p, "a"); get(t, p, "b") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPartitionsGet(b *testing.B) {
	for name, idle := range map[string]time.Duration{"plain": 0, "idle": time.Hour} {
		b.Run(name, func(b *testing.B) {
			p := partitions(b, shield.PartitionConfig[string]{Idle: idle})
			get(b, p, "a")
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					get(b, p, "a")
				}
			})
		})
	}
}
