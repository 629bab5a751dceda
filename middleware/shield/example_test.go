package shield_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

func Example() {
	// region:build
	orders, err := shield.New("orders",
		shield.Timeout{After: 10 * time.Second}, // all attempts together
		shield.Retry{Max: 2, Backoff: shield.Constant(time.Millisecond)},
		shield.Breaker{},
		shield.Timeout{After: 3 * time.Second}, // each attempt
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	// endregion:build
	attempt := 0
	err = orders.Do(context.Background(), func(context.Context) error {
		if attempt++; attempt == 1 {
			return errors.New("db down")
		}
		return nil
	})
	fmt.Println(err, "after", attempt, "attempts")
	fmt.Println(orders)
	// Output:
	// <nil> after 2 attempts
	// orders: Timeout(10s) > Retry(2, 1ms) > Breaker(5 consecutive, open 15s) > Timeout(3s)
}

func ExampleCall() {
	s := shield.Must(shield.New("prices", shield.Fallback(100)))
	price, err := shield.Call(context.Background(), s, "tea", func(_ context.Context, item string) (int, error) {
		return 0, errors.New("no price for " + item)
	})
	fmt.Println(price, err)
	// Output: 100 <nil>
}

func ExampleShield_Enter() {
	s := shield.Must(shield.New("streams", shield.Concurrency{Max: 1}))
	pass, err := s.Enter(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = s.Enter(context.Background())
	fmt.Println(errors.Is(err, &shield.Rejected{Reason: shield.ConcurrencyLimited}))
	fmt.Println(pass.Exit(nil)) // with the error of the work
	// Output:
	// true
	// <nil>
}

func ExampleHedge() {
	s := shield.Must(shield.New("reads", shield.Hedge{Delay: time.Millisecond}))
	replicas := make(chan string, 2)
	replicas <- "slow"
	replicas <- "fast"
	reply, err := shield.Call(context.Background(), s, replicas, func(ctx context.Context, replicas chan string) (string, error) {
		replica := <-replicas
		if replica == "slow" {
			<-ctx.Done() // until the other has won
			return "", ctx.Err()
		}
		return replica, nil
	})
	fmt.Println(reply, err)
	// Output: fast <nil>
}

func ExamplePartitions() {
	// region:partitions
	tenants, err := shield.NewPartitions(shield.PartitionConfig[string]{
		Build: func(_ context.Context, tenant string) (*shield.Shield, error) {
			return shield.New(tenant, shield.Breaker{Failures: 1})
		},
		Max:  100,
		Idle: time.Hour,
	})
	// endregion:partitions
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tenants.Close()
	for _, tenant := range []string{"a", "a", "b"} {
		s, err := tenants.Get(context.Background(), tenant)
		if err == nil {
			err = s.Do(context.Background(), func(context.Context) error { return errors.New("down") })
		}
		fmt.Println(tenant, errors.Is(err, &shield.Rejected{}))
	}
	// Output:
	// a false
	// a true
	// b false
}

func ExampleLive() {
	// region:live
	l, err := shield.NewLive("orders", shield.Breaker{})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The breaker is as before and keeps its state; the retry is new.
	fmt.Println(l.Swap(shield.Retry{Max: 1}, shield.Breaker{}))
	fmt.Println(l.Swap(shield.Timeout{After: -time.Second}))
	fmt.Println(l.Shield())
	// endregion:live

	// Output:
	// <nil>
	// shield "orders": layer 0, Timeout: After is -1s: give 0 for 30s, or more; leave the layer out for none
	// orders: Retry(1, 250ms x2 <=30s, equal jitter) > Breaker(5 consecutive, open 15s)
}
