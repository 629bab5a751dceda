//go:build unix

package main

import (
	"fmt"
	"syscall"
	"time"
)

// processCPU is the time that all threads of this process have run, in user and
// kernel mode.
func processCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("getrusage: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
