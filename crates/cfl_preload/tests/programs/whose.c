// SPDX-License-Identifier: MIT OR Apache-2.0
/* Prints whose lock a mutex is: glibc notes the owner in its own place. */
#include "say.h"

int main(void)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

	MUST(pthread_mutex_lock(&m));
	puts(m.__data.__owner == gettid() ? "glibc's" : "ours");
	MUST(pthread_mutex_unlock(&m));
	return 0;
}
