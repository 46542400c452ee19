// SPDX-License-Identifier: MIT OR Apache-2.0
// bump GOROUTINES: goroutines that add to one counter in C, 100 times a call, each
// time with a mutex of C held, for three seconds. Prints thousands a second.
package main

/*
#cgo LDFLAGS: -lpthread
#include <pthread.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long counter;

static void bump(int times)
{
	for (int i = 0; i < times; i++) {
		pthread_mutex_lock(&mutex);
		counter++;
		pthread_mutex_unlock(&mutex);
	}
}

static long counted(void) { return counter; }
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"
)

func main() {
	goroutines, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	const seconds = 3
	end := time.Now().Add(seconds * time.Second)
	var all sync.WaitGroup
	for i := 0; i < goroutines; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Now().Before(end) {
				C.bump(100)
			}
		}()
	}
	all.Wait()
	fmt.Println(int64(C.counted()) / seconds / 1000)
}
