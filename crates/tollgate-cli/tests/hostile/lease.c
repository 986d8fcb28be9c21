/* Has a lease on the file of its first argument, so that whoever opens that file waits. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **arguments) {
    signal(SIGIO, SIG_IGN);
    int file = count > 1 ? open(arguments[1], O_RDWR) : -1;
    if (file < 0 || fcntl(file, F_SETLEASE, F_WRLCK) < 0) {
        perror("lease");
        return 1;
    }
    puts("leased");
    fflush(stdout);
    for (;;) pause();
}
